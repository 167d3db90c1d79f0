// The page: signs in, sends calls, shows cards, answers and the audit story.

import { answerList } from "./answers.js";
import { api, follow } from "./api.js";
import { auditList } from "./audit.js";
import { cardList } from "./cards.js";
import { form } from "./form.js";
import { supported } from "./json.js";
import { el, visible } from "./text.js";

const TOKEN = "token";
const SESSION = "session";
const AUDIT_PAUSE = 1_500;
const TICK = 250;
// The desk is asked a moment after a card has lapsed, so that it has lapsed there too.
const AFTER_LAPSE = 400;

const find = (id) => document.getElementById(id);

/** Tells people who do not see the page. */
function announce(text) {
  find("status").replaceChildren(visible(text));
}

/** The token of the address's fragment goes out of the address bar and out of the history. */
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B")).get("token");
  if (location.hash) history.replaceState(null, "", location.pathname);
  if (given) sessionStorage.setItem(TOKEN, given);
  return sessionStorage.getItem(TOKEN);
}

function signIn(problem = "") {
  find("desk").hidden = true;
  find("sign-in").hidden = false;
  find("sign-in-problem").textContent = problem;
}

function randomSession() {
  const bytes = crypto.getRandomValues(new Uint8Array(4));
  return `session-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

async function start() {
  if (!supported) return signIn("This browser is too old to show numbers exactly. Take one of 2025 or later.");
  const token = takeToken();
  if (!token) return signIn();
  const desk = api(token);
  let me;
  try {
    me = await desk.get("/me");
  } catch (error) {
    return signIn(`${error.message}.`);
  }
  if (me.status !== 200) {
    sessionStorage.removeItem(TOKEN);
    return signIn("The desk does not know this token.");
  }
  return run(desk, me.body);
}

async function definitionsOf(desk, workers) {
  const lists = await Promise.all(workers.map(({ name }) => desk.get(`/workers/${encodeURIComponent(name)}/tools`)));
  return new Map(workers.map(({ name }, index) => [name, lists[index].body.tools ?? []]));
}

function run(desk, me) {
  find("sign-in").hidden = true;
  find("desk").hidden = false;
  find("leave").hidden = false;
  find("who").replaceChildren(visible(`${me.actor}${me.approver ? ", approver" : ""}`));
  find("owner-note").textContent = me.owners_may_decide
    ? "In this demo everyone may decide the cards of their own calls. A deployment keeps caller and approver apart."
    : "";

  const tools = new Map();
  /** Calls that wait for a decision, by the id of their card. */
  const waiting = new Map();
  /** Cards that are decided: the stream may be quicker than the answer that names the card. */
  const closed = new Set();
  let offset = 0;
  const now = () => Date.now() + offset;

  const answers = answerList(find("answers"));
  const audit = auditList(find("audit"));
  const cards = cardList({
    element: find("cards"),
    empty: find("no-cards"),
    known: (tool) => tools.has(tool),
    announce,
    decide,
    onClosed: (card) => {
      closed.add(card.approval_id);
      resume(card.approval_id);
    },
    onCount: (count) => (document.title = count > 0 ? `(${count}) Support desk` : "Support desk"),
  });

  async function decide(card, approved, reason) {
    const body = { approved, args_hash: card.args_hash };
    if (reason) body.reason = reason;
    try {
      const { status, body: answer } = await desk.post(`/approvals/${card.approval_id}/decision`, { body, headers: { "Tool-Scope": card.scope } });
      if (status === 200) return { card: answer };
      // Somebody else was quicker, or time was: the card itself says how it stands.
      return { problem: answer?.error?.safe_message ?? `The desk answered ${status}.`, card: await look(card) };
    } catch (error) {
      return { problem: `Nothing was decided: ${error.message}.` };
    }
  }

  async function look(card) {
    try {
      const { status, body } = await desk.get(`/approvals/${card.approval_id}`, { headers: { "Tool-Scope": card.scope } });
      if (status === 200) return body;
      return status === 404 ? { approval_id: card.approval_id, state: "cancelled", may_decide: false } : undefined;
    } catch {
      return undefined;
    }
  }

  async function call(request, answer, approval) {
    const headers = { "Tool-Scope": request.session };
    if (approval) headers["Tool-Approval"] = approval;
    try {
      const got = await desk.post(`/workers/${encodeURIComponent(request.worker)}/tools/${encodeURIComponent(request.tool)}`, { body: request.arguments, headers });
      answer.show(got);
      const id = got.status === 202 ? got.body?.error?.details?.approval_id : undefined;
      if (id) wait(id, request, answer, got.body.error.details);
      else announce(`${request.tool} answered ${got.status}.`);
    } catch (error) {
      answer.fail(`${error.message}. It is safe to send the same call again in the same session.`);
    }
    tellAudit();
  }

  function wait(id, request, answer, ticket) {
    const lapse = Date.parse(ticket.expires_at) - now() + AFTER_LAPSE;
    // Where the stream is away, the clock brings the caller back.
    const timer = setTimeout(() => resume(id), Math.max(lapse, AFTER_LAPSE));
    const also = waiting.get(id) ?? [];
    waiting.set(id, [...also, { request, answer, timer }]);
    if (closed.has(id)) resume(id);
  }

  /** Comes back with the approval: a yes runs it, and a no is told. */
  function resume(id) {
    const calls = waiting.get(id) ?? [];
    waiting.delete(id);
    for (const { request, answer, timer } of calls) {
      clearTimeout(timer);
      call(request, answer, id);
    }
  }

  // --- the form

  const worker = find("worker");
  const tool = find("tool");
  const session = find("session");
  let current;

  function chooseWorker() {
    const names = definitions.get(worker.value) ?? [];
    tool.replaceChildren(...names.map(({ name }) => el("option", { value: name }, visible(name))));
    chooseTool();
  }

  function chooseTool() {
    const chosen = tools.get(tool.value);
    current = form(chosen?.input_schema ?? {});
    find("about").replaceChildren(visible(chosen ? chosen.description : ""));
    find("fields").replaceChildren(current.element);
  }

  function send(event) {
    event.preventDefault();
    if (!tool.value || !session.value.trim()) return announce("A call needs a tool and a session.");
    const request = { worker: worker.value, tool: tool.value, session: session.value.trim(), arguments: current.read() };
    return call(request, answers.add(request));
  }

  function changeSession(name) {
    session.value = name;
    sessionStorage.setItem(SESSION, name);
    listen();
  }

  // --- what comes by itself

  let listening;

  function listen() {
    listening?.abort();
    listening = new AbortController();
    follow({
      signal: listening.signal,
      open: (signal) => desk.ask("GET", "/approvals/events", { headers: { "Tool-Scope": session.value.trim() }, signal }),
      onState: linkState,
      onEvent: cardsCame,
    });
  }

  async function cardsCame({ event, data }) {
    offset = Date.parse(data.now) - Date.now();
    if (event === "changed") {
      data.approvals.forEach((card) => cards.merge(card));
    } else if (event === "snapshot") {
      for (const missing of cards.snapshot(data.approvals)) {
        const found = await look(missing);
        if (found) cards.merge(found);
      }
    }
    tellAudit();
  }

  let version;
  let telling = false;

  async function tellAudit() {
    if (telling || document.visibilityState !== "visible") return;
    telling = true;
    try {
      const { status, headers, body } = await desk.get("/audit", { headers: version ? { "If-None-Match": version } : {} });
      if (status === 200) {
        version = headers.get("ETag");
        audit.show(body.records);
      }
    } catch {
      // It is asked again soon.
    }
    telling = false;
  }

  function linkState(state) {
    if (state === "refused") return leave();
    find("link").dataset.state = state;
    find("link-text").textContent = state === "open" ? "Live" : "Reconnecting …";
    return undefined;
  }

  function leave() {
    sessionStorage.clear();
    location.reload();
  }

  let definitions = new Map();

  async function begin() {
    try {
      definitions = await definitionsOf(desk, me.workers);
    } catch (error) {
      return announce(`The tools cannot be listed: ${error.message}.`);
    }
    for (const definition of [...definitions.values()].flat()) tools.set(definition.name, definition);
    worker.replaceChildren(...me.workers.map(({ name }) => el("option", { value: name }, visible(name))));
    // The one with every tool shows most.
    if (definitions.has("desk")) worker.value = "desk";
    chooseWorker();
    changeSession(sessionStorage.getItem(SESSION) ?? randomSession());
    worker.addEventListener("change", chooseWorker);
    tool.addEventListener("change", chooseTool);
    session.addEventListener("change", () => changeSession(session.value.trim() || randomSession()));
    find("new-session").addEventListener("click", () => changeSession(randomSession()));
    find("call").addEventListener("submit", send);
    find("clear-cards").addEventListener("click", cards.clear);
    find("clear-answers").addEventListener("click", answers.clear);
    find("leave").addEventListener("click", leave);
    setInterval(() => cards.tick(now()), TICK);
    setInterval(tellAudit, AUDIT_PAUSE);
    document.documentElement.dataset.ready = "true";
    return undefined;
  }

  return begin();
}

find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = find("token").value.trim();
  if (!token) return;
  sessionStorage.setItem(TOKEN, token);
  find("token").value = "";
  start();
});

start();
