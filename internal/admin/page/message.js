// One message: its row, what happened to it, and what can be done with it.
import { $, make, rich } from "./dom.js";
import { get } from "./api.js";
import { number, bytes, seconds, when } from "./format.js";
import { say, told } from "./language.js";
import { change } from "./messages.js";

let changed = () => {}, asked = 0;

export function start(whenChanged) { changed = whenChanged; }

export async function open(ref, table) {
  const box = $("m-one"), mine = ++asked;
  box.hidden = !ref;
  if (!ref) return;
  box.replaceChildren(make("h2", { id: "m-one-title" }, say`Looking for ${ref} …`));
  try {
    const found = await get("messages/" + encodeURIComponent(ref), { table });
    if (mine !== asked) return; // another one was asked for meanwhile
    if (found.matches.length === 0) box.replaceChildren(make("h2", { id: "m-one-title" }, say`Nothing found`), make("p", null, say`No table has a row with the id, message id or key ${ref}.`), ...notes(found.notes));
    else if (found.matches.length === 1) await one(box, found.matches[0], found.notes);
    else box.replaceChildren(make("h2", { id: "m-one-title" }, say`${found.matches.length} rows match ${ref}`), ...notes(found.notes), make("ul", { class: "list" }, found.matches.map(m => make("li", null, link(m), " " + say`${m.status}, ${m.topic || ""}, ${seconds(m.age_seconds)} old`))));
  } catch (e) {
    if (mine === asked) box.replaceChildren(make("h2", { id: "m-one-title" }, say`Nothing found`), make("p", { class: "bad", role: "alert" }, rich(e.message)));
  }
  box.scrollIntoView({ block: "nearest" });
}

const notes = list => (list || []).map(n => make("p", { class: "soft" }, rich(n)));
const link = m => make("a", { href: "#messages?" + new URLSearchParams({ table: m.table, ref: m.id }) }, m.table + " " + m.id + " (" + m.message_id + ")");

async function one(box, m, more) {
  const facts = [[say`table`, m.table], ["id", m.id], [say`status`, m.status + " (" + m.code + ")", m.status === "failed" ? "bad" : null], ["topic", m.topic], ["key", m.key], [say`attempts`, number(m.attempts)], [say`reason`, told(m.reason), "bad"],
    [say`made`, m.created_at && say`${when(m.created_at)}, ${seconds(m.age_seconds)} ago`], [say`last attempt`, m.last_execution && when(m.last_execution)], [say`due`, m.due_at && when(m.due_at)], [say`sent`, m.sent_at && when(m.sent_at)], [say`broker's id`, m.broker_id],
    [say`headers`, (m.headers || []).map(h => h.name + ": " + h.value).join(", ")], [say`body`, bytes(m.body_bytes)], [say`fault`, told(m.fault), "bad"]].filter(([, v]) => v);
  const said = make("p", { class: "said", role: "status" }), body = make("div"), trace = make("div", null, make("p", { class: "soft" }, say`asking the table, the state and the broker …`));
  const act = async what => {
    const done = await change(what, { table: m.table, ids: [m.id] });
    if (!done) return;
    await open(m.id, m.table);
    const place = $("m-one").querySelector(".said");
    if (place) place.textContent = done;
    changed();
  };
  const final = m.status !== "failed" && m.status !== "pending";
  box.replaceChildren(
    make("h2", { id: "m-one-title", tabindex: "-1" }, m.message_id), ...notes(more),
    make("div", { class: "actions" }, make("button", { type: "button", class: "primary act", hidden: final, onclick: () => act("retry") }, say`Retry…`), make("button", { type: "button", class: "danger act", hidden: m.status !== "failed", onclick: () => act("discard") }, say`Discard…`),
      make("button", { type: "button", class: "act", onclick: e => reveal(m, body, e.target) }, say`Show the body`), make("button", { type: "button", onclick: () => { location.hash = "messages"; } }, say`Close`)), said,
    make("div", { class: "columns" }, make("div", null, make("dl", null, facts.flatMap(([name, value, cls]) => [make("dt", null, name), make("dd", { class: cls }, value)]))), make("div", null, make("h3", null, say`What happened to it`), trace)), body);
  try {
    history(trace, await get("messages/" + encodeURIComponent(m.id) + "/trace", { table: m.table }));
  } catch (e) {
    trace.replaceChildren(make("p", { class: "bad" }, say`The trace cannot be read:` + " ", rich(e.message)));
  }
}

// tones are how an event looks; most are neither good nor bad.
const tones = { published: "good", written: "good", attempt: "bad", failed: "bad", suspended: "warn", waiting: "warn" };

function history(box, t) {
  box.replaceChildren(
    ...(t.waits_for ? [make("p", { class: "notice" }, say`It waits for:` + " ", rich(t.waits_for))] : []),
    make("ol", { class: "trace" }, t.events.map(e => make("li", { class: tones[e.what] }, make("time", { datetime: e.at }, e.at ? when(e.at) : ""), make("b", null, told(e.what.replaceAll("_", " "))), " ", make("span", { class: "tag" }, e.source), make("br"), rich(e.detail)))),
    ...notes(t.unknown));
}

// reveal shows the body, which may be about people, only when it is asked for.
async function reveal(m, box, button) {
  button.disabled = true;
  try {
    const row = (await get("messages/" + encodeURIComponent(m.id), { table: m.table, body: 1 })).matches.find(r => r.id === m.id && r.table === m.table);
    if (!row || row.body === undefined) throw new Error(say`the row has no body`);
    let shown = row.body;
    if (row.body_encoding !== "base64") try { shown = JSON.stringify(JSON.parse(row.body), null, 2); } catch { /* not JSON: as it is */ }
    box.replaceChildren(make("h3", null, say`Body` + (row.body_encoding === "base64" ? " (base64)" : "")), make("pre", { class: "body", tabindex: "0" }, shown));
  } catch (e) {
    box.replaceChildren(make("p", { class: "bad" }, rich(e.message)));
    button.disabled = false;
  }
}
