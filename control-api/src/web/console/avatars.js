// Faces: those of the server, and those made of one's own pictures.

import * as api from "./api.js";
import { button, h, link, pill } from "./dom.js";
import { form } from "./form.js";
import { busy, card, dialog, every, head, problem, sure, toast } from "./ui.js";

const STATES = { QUEUED: ["Waiting", "warn"], PROCESSING: ["In the making", "warn"], COMPLETED: ["Ready", "good"], FAILED: ["Failed", "bad"] };
const LARGEST = 9 << 20;

const face = (avatar) => h("li", { class: "tile tall" }, h("img", { src: avatar.display_picture, alt: `Picture of ${avatar.avatar_name}`, width: 256, height: 256, loading: "lazy" }),
  h("div", { class: "what" }, h("h3", {}, avatar.avatar_name), h("p", { class: "soft" }, avatar.gender)),
  link("Make an agent", `/console/agents/new?face=${encodeURIComponent(avatar.avatar_key_id)}`, { class: "button small", "aria-label": `Make an agent with the face of ${avatar.avatar_name}` }, "plus"));

export async function avatarsPage({ signal }) {
  const [stock, own] = await Promise.all([api.get("/v1/ext/avatars", signal), api.all("/v2/custom-avatars", signal)]);
  const list = h("ul", { class: "list" });
  const none = h("p", { class: "soft" }, "None yet.");
  let going = false;
  const draw = (all) => {
    going = all.some(({ status }) => status === "QUEUED" || status === "PROCESSING");
    none.hidden = all.length > 0;
    list.replaceChildren(...all.map((avatar) => {
      const [words, tone] = STATES[avatar.status] ?? [avatar.status, ""];
      return h("li", {}, h("div", { class: "what" }, h("h3", {}, avatar.avatar_name), h("p", { class: avatar.error ? "fault" : "soft" }, avatar.error ? api.sentence(avatar.error) : `${avatar.gender}${avatar.is_private ? ", private" : ""}`)),
        pill(words, tone),
        avatar.status === "COMPLETED" && link("Make an agent", `/console/agents/new?face=${encodeURIComponent(avatar.avatar_key_id)}`, { class: "button small" }, "plus"),
        button("", { class: "plain", "aria-label": `Delete ${avatar.avatar_name}`, onclick: async ({ currentTarget }) => {
          if (!(await sure(`Delete ${avatar.avatar_name}?`, "Agents with this face need another one. This cannot be undone.", "Delete"))) return;
          await busy(currentTarget, () => api.remove(`/v2/custom-avatar/${avatar.id}`));
          refresh();
        } }, "bin"));
    }));
  };
  const refresh = async () => draw(await api.all("/v2/custom-avatars", signal));
  draw(own);
  every(2, signal, () => going && refresh());
  return [
    head("Avatars", "The faces that agents can have.", button("New avatar", { class: "primary", onclick: () => create(refresh) }, "plus")),
    h("h2", { class: "part" }, "On this server"),
    stock.length ? h("ul", { class: "tiles many" }, stock.map(face)) : problem(new api.Refused(503, {})),
    card("Your own", h("p", { class: "soft" }, "Made of one picture of a face, seen from the front."), list, none),
  ];
}

/** A file as a data URI, for showing and sending. */
const dataOf = (file) => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => fail(reader.error);
  reader.readAsDataURL(file);
});

function create(refresh) {
  return dialog("New avatar", (close) => {
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
