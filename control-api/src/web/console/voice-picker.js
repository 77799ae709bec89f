// The dialog in which a voice is chosen: a search in the voices of a provider, with a sample of
// each.

import * as api from "./api.js";
import { button, h } from "./dom.js";
import { sampleButton, stopSample } from "./sample-player.js";
import { dialog, loadingIndicator } from "./ui.js";

const PAGE_SIZE = 20;

/** What is known of a voice beside its name. */
const details = (voice) => [voice.language, voice.gender].filter(Boolean).join(" · ");

/**
 * Shows the voices of `model.provider`. Resolves with `{voice_id, name}`, or null.
 * @param {{provider: string, model_id: string | null, language: string | null}} model
 * @param {string} providerName
 */
export async function chooseVoice(model, providerName) {
  const abort = new AbortController();
  let chosen = null;
  await dialog(`Voices: ${providerName}`, (close) => {
    const status = h("p", { class: "soft", role: "status" });
    const sampleStatus = h("p", { class: "soft", role: "status" });
    const results = h("ul", { class: "list voices" });
    const more = button("Show more", { class: "small", hidden: true, onclick: () => load(false) });
    let timer = 0;
    let offset = 0;
    let requests = 0;
    const onInput = () => {
      clearTimeout(timer);
      timer = setTimeout(() => load(true), 250);
    };
    const search = h("input", { type: "search", id: "voice-search", oninput: onInput });
    const language = h("input", {
      type: "text",
      id: "voice-language",
      value: model.language ?? "",
      placeholder: "any",
      autocomplete: "off",
      spellcheck: "false",
      oninput: onInput,
    });
    const item = (voice) =>
      h(
        "li",
        {},
        h(
          "div",
          { class: "item-text" },
          h("h3", {}, voice.name),
          h(
            "p",
            { class: "soft" },
            voice.name !== voice.voice_id && [
              h("code", {}, voice.voice_id),
              details(voice) && " · ",
            ],
            details(voice),
          ),
        ),
        h(
          "div",
          { class: "actions" },
          sampleButton("Play", () => ({ ...model, voice_id: voice.voice_id }), sampleStatus, {
            "aria-label": `Play or stop a sample of ${voice.name}`,
          }),
          button("Use", {
            class: "small primary",
            "aria-label": `Use ${voice.name}`,
            onclick: () => {
              chosen = voice;
              close("use");
            },
          }),
        ),
      );
    const load = async (fromStart) => {
      const request = ++requests;
      if (fromStart) offset = 0;
      status.replaceChildren(loadingIndicator("Loading the voices …"));
      try {
        const { items, total } = await api.list(
          `/v1/ext/provider/${encodeURIComponent(model.provider || "default")}/voices`,
          {
            search: search.value.trim(),
            language: language.value.trim(),
            offset,
            perpage: PAGE_SIZE,
          },
          abort.signal,
        );
        if (request !== requests) return;
        if (fromStart) results.replaceChildren();
        results.append(...items.map(item));
        offset += items.length;
        more.hidden = offset >= total;
        status.textContent = total ? `${offset} of ${total}` : "No voice matches.";
      } catch (error) {
        if (abort.signal.aborted || request !== requests) return;
        if (!(error instanceof api.ApiError)) throw error;
        results.replaceChildren();
        more.hidden = true;
        status.textContent = error.details.length
          ? api.toSentence(`${error.details[0].field} ${error.details[0].reason}`)
          : error.userMessage;
      }
    };
    load(true);
    return [
      h(
        "div",
        { class: "fields" },
        h("div", { class: "field" }, h("label", { for: "voice-search" }, "Search"), search),
        h("div", { class: "field" }, h("label", { for: "voice-language" }, "Language"), language),
      ),
      status,
      results,
      h("div", { class: "actions" }, more, sampleStatus),
    ];
  });
  abort.abort();
  stopSample();
  return chosen;
}
