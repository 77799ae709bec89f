// Avatars: the stock avatars of the server, and custom ones, from the editor or from a photo.

import { startConversation } from "./agents.js";
import * as api from "./api.js";
import { button, h, link, pill, timeElement } from "./dom.js";
import {
  backLink,
  card,
  confirmDialog,
  errorMessage,
  pageHeader,
  pollWhileVisible,
  replaceKeepingFocus,
  runBusy,
  toast,
} from "./ui.js";

const STATUS_LABELS = {
  QUEUED: ["Waiting", "warn"],
  PROCESSING: ["In progress", "warn"],
  COMPLETED: ["Ready", "good"],
  FAILED: ["Failed", "bad"],
};

const stockAvatarTile = (avatar) =>
  h(
    "li",
    { class: "tile tall" },
    h("img", {
      src: avatar.display_picture,
      alt: `Picture of ${avatar.avatar_name}`,
      width: 256,
      height: 256,
      loading: "lazy",
    }),
    h(
      "div",
      { class: "item-text" },
      h("h3", {}, avatar.avatar_name),
      h("p", { class: "soft" }, avatar.gender),
    ),
    link(
      "Create an agent",
      `/console/agents/new?face=${encodeURIComponent(avatar.avatar_key_id)}`,
      {
        needs: "administer",
        class: "button small",
        "aria-label": `Create an agent with the avatar ${avatar.avatar_name}`,
      },
      "plus",
    ),
  );

const isInProgress = ({ status }) => status === "QUEUED" || status === "PROCESSING";
const statusPill = ({ status }) => pill(...(STATUS_LABELS[status] ?? [status]));

/** The progress bar of an avatar that is being drawn. */
const progressBar = (avatar) =>
  h("progress", {
    max: 100,
    value: avatar.progress,
    "data-of": avatar.id,
    "aria-label": `Progress of ${avatar.avatar_name}`,
  });

/**
 * An avatar's record without its progress, as JSON. While it is unchanged, the list is not rendered
 * again and keeps its focus.
 */
const withoutProgress = ({ progress, updated_at, ...rest }) => JSON.stringify(rest);

async function confirmAndDelete(avatar, control) {
  if (
    !(await confirmDialog(
      `Delete ${avatar.avatar_name}?`,
      "Agents with this avatar will use another one. This cannot be undone.",
      "Delete",
    ))
  )
    return false;
  return runBusy(control, async () => {
    await api.remove(`/v2/custom-avatar/${avatar.id}`);
    return true;
  });
}

export async function avatarsPage({ signal }) {
  const [stock, own] = await Promise.all([
    api.get("/v1/ext/avatars", signal),
    api.listAll("/v2/custom-avatars", signal),
  ]);
  const list = h("ul", { class: "list" });
  const emptyNote = h("p", { class: "soft" }, "None yet.");
  let inProgress = false;
  let lastShapes = "";
  const render = (avatars) => {
    inProgress = avatars.some(isInProgress);
    emptyNote.hidden = avatars.length > 0;
    for (const avatar of avatars) {
      const progress = list.querySelector(`progress[data-of="${avatar.id}"]`);
      if (progress) progress.value = avatar.progress;
    }
    const shapes = avatars.map(withoutProgress).join();
    if (shapes === lastShapes) return;
    lastShapes = shapes;
    replaceKeepingFocus(
      list,
      avatars.map((avatar) =>
        h(
          "li",
          {},
          avatar.output &&
            h("img", {
              class: "avatar-image small",
              src: avatar.output.preview_url,
              alt: "",
              width: 44,
              height: 44,
            }),
          h(
            "div",
            { class: "item-text" },
            h(
              "h3",
              {},
              h(
                "a",
                { id: `see-${avatar.id}`, href: `/console/avatars/${avatar.id}` },
                avatar.avatar_name,
              ),
            ),
            h(
              "p",
              { class: avatar.error ? "fault" : "soft" },
              avatar.error
                ? api.toSentence(avatar.error)
                : `${avatar.gender}${avatar.is_private ? ", private" : ""}`,
            ),
          ),
          isInProgress(avatar) && progressBar(avatar),
          statusPill(avatar),
          avatar.output &&
            link(
              "Create an agent",
              `/console/agents/new?face=${encodeURIComponent(avatar.avatar_key_id)}`,
              { needs: "administer", class: "button small", id: `agent-${avatar.id}` },
              "plus",
            ),
          button(
            "",
            {
              needs: "administer",
              class: "plain",
              id: `delete-${avatar.id}`,
              "aria-label": `Delete ${avatar.avatar_name}`,
              onclick: async ({ currentTarget }) => {
                await confirmAndDelete(avatar, currentTarget);
                refresh();
              },
            },
            "bin",
          ),
        ),
      ),
    );
  };
  const refresh = async () => render(await api.listAll("/v2/custom-avatars", signal));
  render(own);
  pollWhileVisible(2, signal, () => inProgress && refresh());
  return [
    pageHeader(
      "Avatars",
      "The avatars that agents can use.",
      link(
        "Draw an avatar",
        "/console/avatars/new",
        { needs: "administer", class: "button primary" },
        "plus",
      ),
      link(
        "From a photo",
        "/console/avatars/photo",
        { needs: "administer", class: "button" },
        "file",
      ),
    ),
    h("h2", { class: "section-title" }, "On this server"),
    stock.length
      ? h("ul", { class: "tiles many" }, stock.map(stockAvatarTile))
      : errorMessage(new api.ApiError(503, {})),
    card(
      "Your own",
      h("p", { class: "soft" }, "Drawn from settings, or animated from one photo of a face."),
      list,
      emptyNote,
    ),
  ];
}

/** What is stored of the photo of a finished avatar. */
const photoNote = ({ consent_at: consentAt, has_source: hasSource }) =>
  h(
    "p",
    { class: "hint" },
    hasSource
      ? "Made from a photo, of which an encrypted crop is stored."
      : "Made from a photo, of which nothing is stored.",
    consentAt && [" Consent was given on ", timeElement(consentAt), "."],
  );

/** One custom avatar: its progress, then what can be done with it. */
export async function avatarPage({ id, signal, navigate }) {
  const path = `/v2/custom-avatar/${encodeURIComponent(id)}`;
  const avatar = await api.get(path, signal);
  const name = avatar.avatar_name;
  const panel = h("div", { class: "card async-panel" });
  const progress = progressBar(avatar);
  // The same node for all updates: a screen reader announces changes inside it.
  const progressText = h("p", { class: "soft", role: "status" });
  let lastShape = "";
  const render = (current) => {
    progress.value = current.progress;
    const text =
      current.status === "QUEUED"
        ? "Queued."
        : "All poses are drawn in the background: " +
          `${current.progress - (current.progress % 5)} %. You can leave this page.`;
    if (isInProgress(current) && progressText.textContent !== text) progressText.textContent = text;
    if (withoutProgress(current) === lastShape) return;
    lastShape = withoutProgress(current);
    replaceKeepingFocus(
      panel,
      [
        h("p", { class: "tags" }, statusPill(current), current.is_private && pill("Private")),
        current.output &&
          h("img", {
            class: "drawn",
            src: current.output.preview_url,
            alt: `Picture of ${name}`,
            width: 256,
            height: 256,
          }),
        isInProgress(current) && h("div", { class: "field" }, progress, progressText),
        current.error && h("p", { class: "problem", role: "alert" }, api.toSentence(current.error)),
        current.output &&
          h(
            "div",
            { class: "actions" },
            button(
              `Talk to ${name}`,
              {
                needs: "administer",
                class: "primary",
                id: "talk",
                onclick: ({ currentTarget }) => runBusy(currentTarget, () => talkTo(current)),
              },
              "talk",
            ),
            link(
              "Create an agent",
              `/console/agents/new?face=${encodeURIComponent(current.avatar_key_id)}`,
              { needs: "administer", class: "button", id: "agent" },
              "plus",
            ),
            link(
              "Make a video",
              `/console/videos/new?avatar=${encodeURIComponent(current.avatar_key_id)}`,
              { needs: "operate", class: "button", id: "video" },
              "videos",
            ),
          ),
        current.output &&
          isInProgress(current) &&
          h(
            "p",
            { class: "hint" },
            "The avatar can already be used. " +
              "Lips, nods and smiles improve as more poses are drawn, also during a call.",
          ),
        current.output &&
          h(
            "p",
            { class: "hint" },
            "A call creates an agent with this avatar, which stays in your list.",
          ),
        current.status === "COMPLETED" && !current.character && photoNote(current),
      ].filter(Boolean),
    );
  };
  let startingCall = false;
  const talkTo = async (target) => {
    startingCall = true;
    const agent = {
      agent_name: name,
      agent_system_prompt:
        `You are ${name}, a friendly person to chat with. ` +
        "Speak in one or two short sentences.",
      avatars: [
        {
          avatar_key_id: target.avatar_key_id,
          welcome_message: { messages: [`Hello, I am ${name}. How are you?`] },
        },
      ],
    };
    const { id: agentId } = await api.post("/v1/ext/agent", agent);
    await startConversation({ id: agentId });
    navigate(`/console/agents/${agentId}?new`);
  };
  let latest = avatar;
  render(latest);
  pollWhileVisible(1, signal, async () => {
    // While a call is starting, the pressed button must not be replaced.
    if (!isInProgress(latest) || startingCall) return;
    try {
      latest = await api.get(path, signal);
    } catch (error) {
      if (error.status !== 404) throw error;
      // The avatar was deleted elsewhere.
      latest = {};
      return panel.replaceChildren(
        h("p", { class: "problem", role: "alert" }, `${name} was deleted.`),
      );
    }
    if (!startingCall) render(latest);
    if (latest.status === "COMPLETED") toast(`${name} is ready.`);
  });
  return [
    backLink("Avatars", "/console/avatars"),
    pageHeader(
      name,
      avatar.gender === "male" ? "A custom avatar, male." : "A custom avatar, female.",
    ),
    panel,
    card(
      "More",
      h(
        "div",
        { class: "actions" },
        avatar.character &&
          link(
            "Draw a similar avatar",
            `/console/avatars/new?from=${encodeURIComponent(id)}`,
            { needs: "administer", class: "button" },
            "again",
          ),
        button(
          "Delete",
          {
            needs: "administer",
            class: "risky",
            onclick: async ({ currentTarget }) =>
              (await confirmAndDelete(avatar, currentTarget)) && navigate("/console/avatars"),
          },
          "bin",
        ),
      ),
    ),
  ];
}
