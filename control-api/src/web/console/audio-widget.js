// The control for a sound file: it is chosen or dropped, and can be heard before it is sent.

import { formatBytes, h, icon } from "./dom.js";
import { describedBy, inputId } from "./field-ids.js";
import { audioProblem } from "./video-values.js";

/** A sound file. Its value is a File; null while the field is hidden. */
export function audio(field) {
  const id = inputId(field);
  /** @type {File | null} */
  let file = null;
  let isUsed = true;
  let url = "";
  const name = h("p", { class: "name", role: "status" });
  // It is named by the file beside it.
  const player = h("audio", { controls: true, preload: "metadata", hidden: true });
  const choose = (chosen) => {
    file = chosen;
    URL.revokeObjectURL(url);
    url = "";
    player.pause();
    const problem = audioProblem(chosen);
    if (problem) player.removeAttribute("src");
    else {
      url = URL.createObjectURL(chosen);
      player.src = url;
    }
    player.hidden = Boolean(problem);
    player.setAttribute("aria-label", chosen.name);
    name.className = problem ? "fault" : "name";
    name.textContent = problem || `${chosen.name}, ${formatBytes(chosen.size)}`;
  };
  const input = h("input", {
    id,
    type: "file",
    accept: ".wav,.mp3,.ogg,.oga,.opus,audio/wav,audio/mpeg,audio/ogg",
    class: "visually-hidden",
    "aria-describedby": describedBy(field),
    onchange: () => {
      if (input.files[0]) choose(input.files[0]);
      // The same file can be chosen again after it has changed.
      input.value = "";
    },
  });
  const onDrag = (isOver) => (event) => {
    event.preventDefault();
    node.classList.toggle("drag-over", isOver);
  };
  const node = h(
    "div",
    { class: "drop", ondragover: onDrag(true), ondragleave: onDrag(false) },
    icon("sound"),
    h("p", {}, h("label", { for: id }, "Choose a file"), " or drop it here"),
    input,
    name,
    player,
  );
  node.addEventListener("drop", (event) => {
    onDrag(false)(event);
    const [dropped] = event.dataTransfer.files;
    if (!dropped) return;
    choose(dropped);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
  return {
    node,
    get: () => {
      if (!isUsed) return null;
      if (!file) throw new Error("Choose a sound file.");
      const problem = audioProblem(file);
      if (problem) throw new Error(problem);
      return file;
    },
    refresh: (get) => {
      isUsed = field.visibleIf?.(get) ?? true;
      if (!isUsed) player.pause();
    },
    focusTarget: () => input,
    group: true,
  };
}
