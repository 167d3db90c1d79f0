// What calls answered, newest first.

import { pretty } from "./json.js";
import { el, visible, visibleJson, visibleLines } from "./text.js";

const MOST = 50;

/** The list of answers. `add(call)` gives what to call with each answer to it. */
export function answerList(element) {
  function add({ worker, tool, session }) {
    const status = el("span", { class: "pill" }, "…");
    const said = el("p", { class: "said" });
    const envelope = el("pre", { class: "envelope" });
    const heading = el("h3", {}, el("code", {}, visible(`${worker}/${tool}`)), status);
    const entry = el("article", { class: "answer", "data-tool": tool }, heading,
      el("p", { class: "meta" }, visible(`session ${session} · ${new Date().toLocaleTimeString()}`)), said, envelope);
    element.querySelector(":scope > .empty")?.remove();
    element.prepend(entry);
    while (element.children.length > MOST) element.lastElementChild.remove();
    return {
      show({ status: code, body }) {
        entry.dataset.status = code;
        status.textContent = code;
        status.dataset.kind = kindOf(code, body);
        said.replaceChildren(visibleLines(inWords(code, body)));
        envelope.textContent = visibleJson(pretty(body));
      },
      fail(problem) {
        status.textContent = "no answer";
        status.dataset.kind = "bad";
        said.replaceChildren(visible(problem));
      },
    };
  }
  return { add, clear: () => element.replaceChildren() };
}

function kindOf(code, body) {
  if (code === 202) return "waits";
  if (code === 200) return body?.meta?.replayed ? "again" : "good";
  return "bad";
}

function inWords(code, body) {
  if (code === 202) return "Waits for a decision.";
  if (code === 200) return body?.meta?.replayed ? "Answered with the first result; nothing ran again." : "Done.";
  return body?.error?.safe_message ?? "Refused.";
}
