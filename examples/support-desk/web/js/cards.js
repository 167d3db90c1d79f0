// Approval cards. They stay where they are, never take the focus, and show everything that will run.

import { arm } from "./arm.js";
import { isObject, pretty } from "./json.js";
import { chunks, el, hiddenCount, visible } from "./text.js";

// Longer arguments are folded until somebody opens them.
const FOLD_CHARACTERS = 600;
const FOLD_LINES = 12;
const MASK = "[redacted]";

/**
 * The list of cards. `decide(card, approved, reason)` resolves to `{ problem?, card? }`; `known(tool)` says whether the tool
 * is one that this page knows; `onClosed(card)` is told of cards that closed.
 */
export function cardList({ element, empty, decide, known, announce, onClosed, onCount }) {
  const cards = new Map();
  // Whatever grows or shrinks may move a button under a finger that is on its way.
  new ResizeObserver(() => cards.forEach((card) => card.moved())).observe(element);

  function count() {
    empty.hidden = cards.size > 0;
    onCount([...cards.values()].filter((card) => card.pending).length);
  }

  function make(shown) {
    const card = approvalCard(shown, { decide, known, announce, merge });
    cards.set(shown.approval_id, card);
    return card;
  }

  function merge(shown) {
    const old = cards.get(shown.approval_id);
    if (old && shown.state === "pending" && old.pending && !isSame(old.shown, shown)) {
      // Something else would run now: everything is to be read again.
      const card = make(shown);
      old.stop();
      old.element.replaceWith(card.element);
      announce(`Changed, and to be read again: ${shown.tool}.`);
    } else if (old) {
      if (old.update(shown)) onClosed(shown);
    } else if (shown.state === "pending") {
      element.append(make(shown).element);
      announce(`A decision is needed: ${shown.tool}, asked by ${shown.actor_id}.`);
    } else {
      onClosed(shown);
    }
    count();
  }

  return {
    merge,
    /** Everything that waits, as the desk sees it; `missing` are the cards that it does not name. */
    snapshot(all) {
      all.forEach(merge);
      const named = new Set(all.map((card) => card.approval_id));
      return [...cards.values()].filter((card) => card.pending && !named.has(card.shown.approval_id)).map((card) => card.shown);
    },
    tick: (now) => cards.forEach((card) => card.tick(now)),
    clear() {
      for (const [id, card] of cards) {
        if (card.pending) continue;
        card.element.remove();
        cards.delete(id);
      }
      count();
    },
  };
}

/** Whether two states of a card show the same thing that would run. */
function isSame(one, other) {
  const facts = ({ tool, arguments: values, args_hash: hash, actor_id: actor, agent, scope, run, risk, reason, expires_at: until }) =>
    JSON.stringify([tool, values, hash, actor, agent, scope, run, risk, reason, until]);
  return facts(one) === facts(other);
}

const STATES = {
  pending: "",
  approved: "Approved",
  denied: "Denied",
  expired: "Expired: nobody decided in time, so it does not run",
  cancelled: "Withdrawn",
  running: "Approved; it runs",
  completed: "Approved; it ran",
  failed: "Approved; it ran and failed",
  unknown: "Approved; nobody can say whether it ran",
};

function approvalCard(first, { decide, known, announce, merge }) {
  let shown = first;
  let busy = false;
  let problem = "";
  let lapsed = false;
  const id = `card-${shown.approval_id}`;
  const fault = whyNot(shown, known);
  const shape = argumentsOf(shown.arguments);

  const clock = el("span", { class: "clock", role: "timer" });
  const bar = el("progress", { class: "bar", max: 1, value: 1, "aria-hidden": "true" });
  const fold = el("div", { class: shape.long ? "arguments folded" : "arguments", id: `${id}-arguments` }, ...shape.elements);
  const open = el("button", { type: "button", class: "open", "aria-expanded": "false", "aria-controls": fold.id },
    `Show all ${shape.characters.toLocaleString("en")} characters`);
  const says = el("p", { class: "says", id: `${id}-says` });
  const reason = el("input", { type: "text", id: `${id}-reason`, maxlength: "500", autocomplete: "off" });
  const yes = el("button", { type: "button", class: "approve", "aria-disabled": "true", "aria-describedby": says.id }, "Approve");
  const no = el("button", { type: "button", class: "deny" }, "Deny");
  const title = el("h3", { id: `${id}-title` }, visible(shown.tool ?? "(no tool)"));

  const element = el("article", { class: "card", "data-state": "pending", "data-approval": shown.approval_id, "aria-labelledby": title.id },
    el("header", {}, title, el("span", { class: "risk", title: RISKS[shown.risk] }, visible(shown.risk ?? "?")), clock),
    bar,
    facts(shown),
    fold,
    shape.long ? open : undefined,
    ...shape.notes.map((note) => el("p", { class: "warning" }, note)),
    el("div", { class: "decision" },
      el("label", { for: reason.id }, "Reason (optional)"), reason,
      el("div", { class: "buttons" }, yes, no), says),
  );

  const watch = arm({ parts: fault ? [] : [title, ...shape.parts], button: yes, onChange: told });

  function told({ armed, unseen, all }) {
    const possible = mayDecide() && !fault;
    yes.setAttribute("aria-disabled", String(!(possible && armed)));
    no.setAttribute("aria-disabled", String(!mayDecide()));
    if (shown.state === "pending") say(problem || advice({ armed, unseen, all }));
  }

  // One line for whatever there is to say, with room for it from the beginning: nothing moves when it is said.
  function say(text) {
    says.replaceChildren(visible(text));
  }

  function mayDecide() {
    return shown.state === "pending" && shown.may_decide === true && !busy && !lapsed;
  }

  function advice({ armed, unseen, all }) {
    if (lapsed) return "Time is up.";
    if (busy) return "Deciding …";
    if (!mayDecide()) return "You may not decide this.";
    if (fault) return fault;
    if (armed) return "";
    if (unseen === 0) return "A moment …";
    const folded = fold.classList.contains("folded");
    const seen = Math.floor(((all - unseen) / all) * 100);
    return folded ? "Show everything that will run before you approve." : `Scroll through everything that will run (${seen} % seen).`;
  }

  async function send(approved) {
    busy = true;
    problem = "";
    watch.again();
    const answer = await decide(shown, approved, reason.value.trim());
    busy = false;
    problem = answer.problem ?? "";
    if (problem) announce(problem);
    if (answer.card) merge({ ...shown, ...answer.card });
    watch.again();
  }

  open.addEventListener("click", () => {
    fold.classList.remove("folded");
    open.setAttribute("aria-expanded", "true");
    open.textContent = "Everything is shown";
    open.setAttribute("aria-disabled", "true");
    watch.again();
  });
  yes.addEventListener("click", () => {
    if (yes.getAttribute("aria-disabled") !== "true" && watch.armed) send(true);
    else if (says.textContent) announce(says.textContent);
  });
  no.addEventListener("click", () => no.getAttribute("aria-disabled") !== "true" && send(false));
  // A key that is held down since before the button was armed says nothing about this card.
  for (const button of [yes, no]) button.addEventListener("keydown", (event) => event.repeat && event.preventDefault());

  function update(next) {
    const closes = shown.state === "pending" && next.state !== "pending";
    if (shown.state === "pending" || next.state !== "pending") shown = { ...shown, ...next };
    if (closes) close();
    else watch.again();
    return closes;
  }

  function close() {
    element.dataset.state = shown.state;
    reason.disabled = true;
    clock.textContent = "";
    const by = shown.decided_by ? ` by ${shown.decided_by}` : "";
    const why = shown.decision_reason ? `: ${shown.decision_reason}` : "";
    const text = `${STATES[shown.state] ?? shown.state}${by}${why}.`;
    say(text);
    announce(`${shown.tool}: ${text}`);
    watch.stop();
  }

  let place = placeOf(yes);

  function moved() {
    const [x, y] = placeOf(yes);
    // Fractions of a pixel come and go with the text.
    if (Math.abs(x - place[0]) < 2 && Math.abs(y - place[1]) < 2) return;
    place = [x, y];
    if (shown.state === "pending") watch.again();
  }

  function tick(now) {
    if (shown.state !== "pending") return;
    const total = Date.parse(shown.expires_at) - Date.parse(shown.created_at);
    const left = Math.max(0, Date.parse(shown.expires_at) - now);
    clock.textContent = left > 0 ? `${Math.ceil(left / 1000)} s` : "time is up";
    bar.value = total > 0 ? Math.min(1, left / total) : 0;
    element.classList.toggle("urgent", left < 10_000);
    if (lapsed !== (left === 0)) {
      lapsed = left === 0;
      watch.again();
    }
  }

  return {
    element,
    update,
    tick,
    stop: () => watch.stop(),
    moved,
    get shown() {
      return shown;
    },
    get pending() {
      return shown.state === "pending";
    },
  };
}

/** Where an element is on the page, wherever that is scrolled to. */
function placeOf(element) {
  const { x, y } = element.getBoundingClientRect();
  return [x + scrollX, y + scrollY];
}

const RISKS = {
  R0: "R0: reads what anyone may read",
  R1: "R1: reads what belongs to someone",
  R2: "R2: changes something, and the change can be undone",
  R3: "R3: changes something that is hard to undo",
  R4: "R4: money, law, production",
};

/** Why nobody can say yes to such a card on this page. */
function whyNot(card, known) {
  if (!card.tool || !known(card.tool)) return "This page does not know the tool, so it cannot be approved here.";
  if (!isObject(card.arguments)) return "The arguments cannot be shown, so it cannot be approved here.";
  if (Object.keys(card.arguments).length === 0) return "There are no arguments to show, so it cannot be approved here.";
  if (typeof card.args_hash !== "string") return "The card does not say what exactly would run, so it cannot be approved here.";
  return undefined;
}

function facts(card) {
  const rows = [
    ["Asked by", card.agent ? `${card.actor_id}, through ${card.agent}` : card.actor_id],
    ["Session", card.scope],
    ["Run", card.run],
    ["Why", card.reason],
    ["Hash", card.args_hash],
  ].filter(([, value]) => value !== undefined && value !== "");
  return el("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => [
    el("dt", {}, name),
    el("dd", name === "Hash" ? { class: "hash" } : {}, el("bdi", {}, visible(value))),
  ]));
}

/** What will run, piece by piece: elements to show, and the parts that must all have been on the screen. */
function argumentsOf(values) {
  if (!isObject(values)) return { elements: [], parts: [], notes: [], characters: 0, long: false };
  const parts = [];
  let characters = 0;
  let lines = 0;
  let hidden = 0;
  let masked = false;
  const texts = Object.entries(values).map(([name, value]) => {
    const isText = typeof value === "string";
    return { name, value, isText, text: isText ? value : pretty(value) };
  });
  // The shortest first: it often says what the others are about.
  texts.sort((one, other) => one.text.length - other.text.length);
  const elements = texts.map(({ name, value, isText, text }) => {
    const label = el("h4", {}, visible(name), isText ? undefined : el("span", { class: "kind" }, kindOf(value)));
    const body = text === "" ? [el("span", { class: "chunk nothing" }, "(empty)")] : chunks(text, !isText);
    parts.push(label, ...body);
    characters += name.length + text.length;
    lines += text.split("\n").length;
    hidden += hiddenCount(name) + hiddenCount(text);
    masked ||= text.includes(MASK);
    return el("section", { class: "argument" }, label, el("div", { class: "value" }, ...body));
  });
  const notes = [];
  if (hidden > 0) notes.push(`${hidden} hidden ${hidden === 1 ? "character is" : "characters are"} spelt out as \\… above.`);
  if (masked) notes.push(`What stands as ${MASK} is masked: it is not shown, and it will run.`);
  return { elements, parts, notes, characters, long: characters > FOLD_CHARACTERS || lines > FOLD_LINES };
}

function kindOf(value) {
  if (value === null) return "null";
  if (Array.isArray(value)) return "list";
  if (isObject(value)) return "object";
  return typeof value === "boolean" ? "yes or no" : "number";
}
