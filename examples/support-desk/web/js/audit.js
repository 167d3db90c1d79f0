// The audit story: each call from its opening to its end, and each execution.

import { pretty } from "./json.js";
import { el, visible, visibleJson } from "./text.js";

/** Shows the records, newest call first. What is open stays open. */
export function auditList(element) {
  const calls = new Map();

  function show(records) {
    if (records.length === 0) return;
    element.querySelector(":scope > .empty")?.remove();
    for (const record of records) {
      let call = calls.get(record.call_id);
      if (!call) {
        call = story(record);
        calls.set(record.call_id, call);
        element.prepend(call.element);
      }
      call.tell(record);
    }
    forget(new Set(records.map((record) => record.call_id)));
  }

  function forget(kept) {
    for (const [id, call] of calls) {
      if (kept.has(id)) continue;
      call.element.remove();
      calls.delete(id);
    }
  }

  return { show };
}

function story(record) {
  const status = el("span", { class: "pill", "data-kind": "waits" }, "open");
  const steps = el("ol", { class: "steps" });
  const raw = el("pre", { class: "envelope" });
  const details = el("details", {}, el("summary", {}, "Records"), raw);
  const element = el("article", { class: "story", "data-call": record.call_id },
    el("h3", {}, el("code", {}, visible(record.tool)), status),
    el("p", { class: "meta" }, visible(`${record.actor}${record.scope ? ` · session ${record.scope}` : ""} · ${time(record.at)}`)),
    steps, details);
  const told = new Map();

  function tell(next) {
    const key = `${next.point} ${next.event}`;
    if (told.has(key)) return;
    told.set(key, next);
    steps.append(el("li", {}, visible(inWords(next))));
    raw.textContent = visibleJson([...told.values()].map(pretty).join("\n"));
    if (next.point === "call" && next.outcome) {
      status.textContent = next.outcome.status;
      status.dataset.kind = next.outcome.code === "APPROVAL_REQUIRED" ? "waits" : KINDS[next.outcome.status] ?? "bad";
      element.dataset.outcome = next.outcome.status;
    }
  }

  return { element, tell };
}

const KINDS = { completed: "good", replayed: "again", joined: "again", cancelled: "waits" };

function inWords({ point, event, approval, execution, attempt, replay_of: replayOf, duration_ms: took, outcome }) {
  if (point === "execution") {
    return event === "opened" ? `execution ${short(execution)} begins${attempt > 1 ? `, attempt ${attempt}` : ""}` : `execution ${outcome.status} in ${took} ms`;
  }
  if (event === "opened") return "opened";
  const parts = [outcome.by ? `${outcome.status} by ${outcome.by}` : outcome.status];
  if (outcome.code) parts.push(outcome.code);
  if (approval) parts.push(`card ${short(approval)}`);
  if (replayOf) parts.push(`answer of ${short(replayOf)}`);
  return `${parts.join(", ")}, after ${took} ms`;
}

function short(id) {
  return id ? `…${String(id).slice(-6)}` : "";
}

function time(at) {
  return new Date(at).toLocaleTimeString();
}
