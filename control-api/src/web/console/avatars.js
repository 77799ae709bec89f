// Faces: those of the server, and one's own: drawn by the editor, or made of a picture.

import * as api from "./api.js";
import { talk } from "./agents.js";
import { button, h, link, pill } from "./dom.js";
import { dataOf } from "./files.js";
import { form } from "./form.js";
import { back, busy, card, dialog, every, head, problem, sure, toast } from "./ui.js";

const STATES = { QUEUED: ["Waiting", "warn"], PROCESSING: ["In the making", "warn"], COMPLETED: ["Ready", "good"], FAILED: ["Failed", "bad"] };
const LARGEST = 9 << 20;

const face = (avatar) => h("li", { class: "tile tall" }, h("img", { src: avatar.display_picture, alt: `Picture of ${avatar.avatar_name}`, width: 256, height: 256, loading: "lazy" }),
  h("div", { class: "what" }, h("h3", {}, avatar.avatar_name), h("p", { class: "soft" }, avatar.gender)),
  link("Make an agent", `/console/agents/new?face=${encodeURIComponent(avatar.avatar_key_id)}`, { needs: "administer", class: "button small", "aria-label": `Make an agent with the face of ${avatar.avatar_name}` }, "plus"));

const goes = ({ status }) => status === "QUEUED" || status === "PROCESSING";
const state = ({ status }) => pill(...(STATES[status] ?? [status]));

/** How far the drawing is: what a person sees, and hears. */
const bar = (avatar) => h("progress", { max: 100, value: avatar.progress, "data-of": avatar.id, "aria-label": `How far ${avatar.avatar_name} is drawn` });

/** All of an avatar's record but how far it is: while that is the same, what is shown of it stays, and with it focus. */
const shape = ({ progress, updated_at, ...rest }) => JSON.stringify(rest);

/** Puts new children in, and focus back on what has the same id. */
function put(node, children) {
  const at = node.contains(document.activeElement) && document.activeElement.id;
  node.replaceChildren(...children);
  if (at) document.getElementById(at)?.focus();
}

async function drop(avatar, control) {
  if (!(await sure(`Delete ${avatar.avatar_name}?`, "Agents with this face show another one from then on. This cannot be undone.", "Delete"))) return false;
  return busy(control, async () => {
    await api.remove(`/v2/custom-avatar/${avatar.id}`);
    return true;
  });
}

export async function avatarsPage({ signal }) {
  const [stock, own] = await Promise.all([api.get("/v1/ext/avatars", signal), api.all("/v2/custom-avatars", signal)]);
  const list = h("ul", { class: "list" });
  const none = h("p", { class: "soft" }, "None yet.");
  let going = false;
  let before = "";
  const draw = (all) => {
    going = all.some(goes);
    none.hidden = all.length > 0;
    for (const avatar of all) {
      const far = list.querySelector(`progress[data-of="${avatar.id}"]`);
      if (far) far.value = avatar.progress;
    }
    const shapes = all.map(shape).join();
    if (shapes === before) return;
    before = shapes;
    put(list, all.map((avatar) => h("li", {},
      avatar.output && h("img", { class: "face small", src: avatar.output.preview_url, alt: "", width: 44, height: 44 }),
      h("div", { class: "what" }, h("h3", {}, avatar.character ? h("a", { id: `see-${avatar.id}`, href: `/console/avatars/${avatar.id}` }, avatar.avatar_name) : avatar.avatar_name),
        h("p", { class: avatar.error ? "fault" : "soft" }, avatar.error ? api.sentence(avatar.error) : `${avatar.gender}${avatar.is_private ? ", private" : ""}`)),
      avatar.character && goes(avatar) && bar(avatar),
      state(avatar),
      avatar.output && link("Make an agent", `/console/agents/new?face=${encodeURIComponent(avatar.avatar_key_id)}`, { needs: "administer", class: "button small", id: `agent-${avatar.id}` }, "plus"),
      button("", { needs: "administer", class: "plain", id: `delete-${avatar.id}`, "aria-label": `Delete ${avatar.avatar_name}`, onclick: async ({ currentTarget }) => {
        await drop(avatar, currentTarget);
        refresh();
      } }, "bin"))));
  };
  const refresh = async () => draw(await api.all("/v2/custom-avatars", signal));
  draw(own);
  every(2, signal, () => going && refresh());
  return [
    head("Avatars", "The faces that agents can have.", link("Draw a person", "/console/avatars/new", { needs: "administer", class: "button primary" }, "plus"), button("From a picture", { needs: "administer", onclick: () => create(refresh) }, "file")),
    h("h2", { class: "part" }, "On this server"),
    stock.length ? h("ul", { class: "tiles many" }, stock.map(face)) : problem(new api.Refused(503, {})),
    card("Your own", h("p", { class: "soft" }, "Drawn by sliders, or made of one picture of a face."), list, none),
  ];
}

/** One of the own people: how far it is, then what can be done with it. */
export async function avatarPage({ id, signal, go }) {
  const path = `/v2/custom-avatar/${encodeURIComponent(id)}`;
  const avatar = await api.get(path, signal);
  const name = avatar.avatar_name;
  const shown = h("div", { class: "card later" });
  const far = bar(avatar);
  // One and the same node: a screen reader tells what changes in it.
  const words = h("p", { class: "soft", role: "status" });
  let before = "";
  const draw = (now) => {
    far.value = now.progress;
    const told = now.status === "QUEUED" ? "Waits for its turn." : `Drawn in every pose, in the background: ${now.progress - now.progress % 5} %. You may leave this page.`;
    if (goes(now) && words.textContent !== told) words.textContent = told;
    if (shape(now) === before) return;
    before = shape(now);
    put(shown, [
      h("p", { class: "tags" }, state(now), now.is_private && pill("Private")),
      now.output && h("img", { class: "drawn", src: now.output.preview_url, alt: `Picture of ${name}`, width: 256, height: 256 }),
      goes(now) && h("div", { class: "field" }, far, words),
      now.error && h("p", { class: "problem", role: "alert" }, api.sentence(now.error)),
      now.output && h("div", { class: "actions" },
        button(`Talk to ${name}`, { needs: "administer", class: "primary", id: "talk", onclick: ({ currentTarget }) => busy(currentTarget, () => meet(now)) }, "talk"),
        link("Make an agent", `/console/agents/new?face=${encodeURIComponent(now.avatar_key_id)}`, { needs: "administer", class: "button", id: "agent" }, "plus")),
      now.output && goes(now) && h("p", { class: "hint" }, "What is drawn so far can talk already. It gains finer lips, nods and smiles as it is drawn, also while you talk."),
      now.output && h("p", { class: "hint" }, "Talking makes an agent with this face, which stays in your list."),
    ].filter(Boolean));
  };
  let meets = false;
  const meet = async (now) => {
    meets = true;
    const agent = { agent_name: name, agent_system_prompt: `You are ${name}, a friendly person to chat with. Speak in one or two short sentences.`, avatars: [{ avatar_key_id: now.avatar_key_id, welcome_message: { messages: [`Hello, I am ${name}. How are you?`] } }] };
    const { id: made } = await api.post("/v1/ext/agent", agent);
    await talk({ id: made });
    go(`/console/agents/${made}?new`);
  };
  let last = avatar;
  draw(last);
  every(1, signal, async () => {
    // Who is about to talk keeps the button that was pressed.
    if (!goes(last) || meets) return;
    try {
      last = await api.get(path, signal);
    } catch (error) {
      if (error.status !== 404) throw error;
      // Somebody deleted it elsewhere.
      last = {};
      return shown.replaceChildren(h("p", { class: "problem", role: "alert" }, `${name} was deleted.`));
    }
    if (!meets) draw(last);
    if (last.status === "COMPLETED") toast(`${name} is ready.`);
  });
  return [
    back("Avatars", "/console/avatars"),
    head(name, avatar.gender === "male" ? "A man of your own." : "A woman of your own."),
    shown,
    card("More", h("div", { class: "actions" },
      avatar.character && link("Draw another one like this", `/console/avatars/new?from=${encodeURIComponent(id)}`, { needs: "administer", class: "button" }, "again"),
      button("Delete", { needs: "administer", class: "risky", onclick: async ({ currentTarget }) => (await drop(avatar, currentTarget)) && go("/console/avatars") }, "bin"))),
  ];
}

function create(refresh) {
  return dialog("An avatar of a picture", (close) => {
    const preview = h("img", { class: "preview", alt: "", hidden: true });
    const fault = h("p", { class: "fault", id: "picture-fault", hidden: true });
    let image = "";
    const file = h("input", { type: "file", id: "picture", accept: "image/png,image/jpeg,image/webp", "aria-describedby": "picture-hint picture-fault", onchange: async () => {
      const [chosen] = file.files;
      image = "";
      preview.hidden = true;
      fault.hidden = true;
      if (!chosen) return;
      if (chosen.size > LARGEST) return refuse("The picture may have at most 9 MB.");
      image = await dataOf(chosen);
      preview.src = image;
      preview.hidden = false;
    } });
    const refuse = (words) => {
      fault.textContent = words;
      fault.hidden = false;
    };
    const made = form({
      value: { gender: "female" }, label: "Create avatar",
      sections: [{ fields: [
        { path: "avatar_name", label: "Name", required: true },
        { path: "gender", label: "Gender", kind: "select", options: [["female", "Female"], ["male", "Male"]] },
        { path: "is_private", label: "Private", kind: "check" },
      ] }],
      save: async (body) => {
        if (!image) throw new api.Refused(400, { error: "Choose a picture first" });
        return api.post("/v2/custom-avatar", { ...body, input_image: image });
      },
      done: () => {
        close("");
        toast("The avatar is queued. Its state is shown in the list.");
        refresh();
      },
    });
    made.node.querySelector(".fields").append(h("div", { class: "field wide" }, h("label", { for: "picture" }, "Picture"), h("p", { class: "hint", id: "picture-hint" }, "PNG, JPEG or WebP, at most 9 MB. One face, from the front, in even light."), file, preview, fault));
    return made.node;
  });
}
