// The view of the messages: which rows wait or failed, why, and what to do with many of them. One message is in message.js.
import { $, make, fill, text, confirm, rich } from "./dom.js";
import { get, post } from "./api.js";
import { number, seconds, when, plural } from "./format.js";
import { say, told } from "./language.js";
import * as message from "./message.js";

const page = 50, bulk = 100, listed = ["failed", "pending", "delayed", "sending", "sent", "held", "any"];
let tables = [], rows = [], next = "", chosen = new Set(), wanted = "", shownTable = "";

const field = (label, control) => make("label", null, label, control);
const input = (id, placeholder, more) => make("input", { id, placeholder, autocomplete: "off", spellcheck: "false", ...more });

export function start() {
  const filter = make("form", { "aria-label": say`Which messages`, onsubmit: e => { e.preventDefault(); go(); } }, make("fieldset", { class: "fields" },
    field(say`Table`, make("select", { id: "m-table" })),
    field(say`Status`, make("select", { id: "m-status" }, listed.map(s => make("option", { value: s }, s)))),
    field(say`Type`, input("m-type", say`any`)), field("Topic", input("m-topic", say`any`)), field(say`Business key`, input("m-key", say`any`)),
    field(say`Reason contains`, input("m-reason", say`any`)), field(say`Older than`, input("m-older", "90s, 15m, 24h")),
    make("button", { class: "primary" }, say`List`)));
  const search = make("form", { role: "search", onsubmit: e => { e.preventDefault(); const ref = $("m-ref").value.trim(); if (ref) location.hash = "messages?" + new URLSearchParams({ ref }); } },
    make("div", { class: "fields" }, make("label", { class: "search" }, say`Find one message: id, message id or business key`, input("m-ref", "order.paid:A-00042", { type: "search" })), make("button", null, say`Find`)));
  $("view-messages").append(
    make("section", { class: "card", "aria-labelledby": "h-find" }, make("h2", { id: "h-find" }, say`Find a message`), search),
    make("section", { class: "card", id: "m-one", hidden: true, "aria-labelledby": "m-one-title" }, make("h2", { id: "m-one-title" }, say`One message`)),
    make("section", { class: "card", "aria-labelledby": "h-list" }, make("h2", { id: "h-list" }, say`Messages`), filter, make("ul", { id: "m-reasons", class: "list", "aria-label": say`Reasons` }),
      make("div", { class: "actions act" }, make("span", { id: "m-chosen", class: "soft" }),
        make("button", { type: "button", id: "m-retry", onclick: () => order("retry", true) }, say`Retry…`), make("button", { type: "button", id: "m-discard", class: "danger", onclick: () => order("discard", true) }, say`Discard…`),
        make("button", { type: "button", id: "m-retry-all", onclick: () => order("retry", false) }, say`Retry all that match…`), make("button", { type: "button", id: "m-discard-all", class: "danger", onclick: () => order("discard", false) }, say`Discard all that match…`)),
      make("p", { id: "m-said", class: "said", role: "status" }),
      make("div", { class: "scroll words", tabindex: "0", role: "region", "aria-labelledby": "h-list" }, make("table", null, make("thead", { id: "m-head" }), make("tbody", { id: "m-rows" }))),
      make("p", { class: "actions" }, make("button", { type: "button", id: "m-more", hidden: true, onclick: () => load(next) }, say`More`))));
  message.start(() => load(""));
  head();
}

// status learns which tables there are.
export function status(s) {
  const names = (s.tables || []).map(t => t.name);
  if (names.join() === tables.join()) return;
  tables = names;
  fill("m-table", names.map(n => make("option", { value: n }, n)));
  if (wanted) $("m-table").value = wanted;
  $("m-table").closest("label").hidden = names.length < 2;
  if (!$("view-messages").hidden) load("");
}

// show sets the form by the address and lists.
export function show(query) {
  wanted = query.table || "";
  if (wanted) $("m-table").value = wanted;
  $("m-status").value = listed.includes(query.status) ? query.status : "failed";
  for (const [id, name] of [["type", "type"], ["topic", "topic"], ["key", "key"], ["reason", "reason"], ["older", "older_than"]]) $("m-" + id).value = query[name] || "";
  $("m-ref").value = query.ref || "";
  message.open(query.ref, query.table);
  if (tables.length) load("");
}

const filters = () => Object.fromEntries(Object.entries({
  status: $("m-status").value, type: $("m-type").value.trim(), topic: $("m-topic").value.trim(), key: $("m-key").value.trim(), reason: $("m-reason").value.trim(), older_than: $("m-older").value.trim(),
}).filter(([, v]) => v));
const table = () => $("m-table").value || tables[0] || "";

function go() {
  const to = "#messages?" + new URLSearchParams({ ...(tables.length > 1 ? { table: table() } : {}), ...filters() });
  if (location.hash === to) load(""); else location.hash = to;
}

async function load(after, scan) {
  text("m-said", say`reading …`, "said soft");
  try {
    const answer = await get("messages", { table: table(), ...filters(), limit: page, after, scan: scan ? 1 : "" });
    if (!after) { rows = []; chosen.clear(); }
    rows = rows.concat(answer.messages);
    next = answer.next;
    shownTable = answer.table;
    text("m-said", (rows.length ? plural(rows.length, "message") + (next ? say`, and there are more` : "") : say`No message is like this.`) + (answer.scan ? " " + told(answer.scan) : ""), "said");
    if (!after) reasons();
  } catch (e) {
    if (!after) rows = [];
    if (e.code === "needs_scan") {
      text("m-said", told(e.message) + " ", "said warn");
      $("m-said").append(make("button", { type: "button", onclick: () => load(after, true) }, say`Read them all the same`));
    } else text("m-said", e.message, "said bad");
  }
  draw();
}

// reasons are a shortcut: the commonest ones, each of which narrows the list.
async function reasons() {
  if ($("m-status").value !== "failed") { fill("m-reasons", []); return; }
  try {
    const list = (await get("messages/stats", { table: table() })).reasons || [];
    fill("m-reasons", list.slice(0, 5).map(r => make("li", null, make("b", null, number(r.count) + " × "), make("button", { type: "button", class: "link", onclick: () => { $("m-reason").value = r.reason.slice(0, 200); go(); } }, r.reason))));
  } catch { fill("m-reasons", []); } // the list itself says what is wrong
}

function head() {
  const all = make("input", { type: "checkbox", id: "m-all", "aria-label": say`Choose all that are shown`, onchange: e => { chosen = new Set(e.target.checked ? rows.map(r => r.id) : []); draw(); } });
  fill("m-head", [make("tr", null, make("th", { scope: "col", class: "act" }, all), ["id", "message id", "topic", "key", say`status`, say`attempts`, say`age`, say`next`, say`reason`].map(h => make("th", { scope: "col" }, h)))]);
}

function draw() {
  fill("m-rows", rows.map(r => make("tr", null,
    make("td", { class: "act" }, make("input", { type: "checkbox", "aria-label": say`Choose ${r.message_id}`, onchange: e => { if (e.target.checked) chosen.add(r.id); else chosen.delete(r.id); count(); } })),
    make("td", null, make("a", { href: "#messages?" + new URLSearchParams({ ...filters(), table: shownTable, ref: r.id }) }, r.id)),
    make("td", { class: "wrap" }, r.message_id), make("td", null, r.topic || "–"), make("td", null, r.key || "–"),
    make("td", { class: r.status === "failed" ? "bad" : null }, r.status === "held" ? "held (" + (r.code || "NULL") + ")" : r.status), make("td", null, number(r.attempts)), make("td", null, seconds(r.age_seconds)), make("td", null, when(r.due_at)), make("td", { class: "wrap" }, r.reason || "–"))));
  [...$("m-rows").querySelectorAll("input")].forEach((box, i) => { box.checked = chosen.has(rows[i].id); });
  $("m-more").hidden = !next;
  count();
}

function count() {
  const st = $("m-status").value, can = ["failed", "pending", "delayed", "any"].includes(st);
  text("m-chosen", chosen.size ? say`${plural(chosen.size, "message")} chosen` : "");
  $("m-all").checked = rows.length > 0 && chosen.size === rows.length;
  $("m-retry").hidden = chosen.size === 0 || !can;
  $("m-retry-all").hidden = chosen.size > 0 || rows.length === 0 || !can;
  $("m-discard").hidden = chosen.size === 0 || st !== "failed";
  $("m-discard-all").hidden = chosen.size > 0 || rows.length === 0 || st !== "failed";
}

async function order(what, some) {
  const body = some ? { table: shownTable, ids: [...chosen] } : { table: shownTable, filter: filters(), limit: bulk };
  const done = await change(what, body);
  if (done) { text("m-said", done, "said"); await load(""); text("m-said", done, "said"); }
}

// change shows what an order would do, asks, and does it. It answers with what to say, or "" when nothing was done.
export async function change(what, body) {
  const words = {
    retry: n => ({ title: say`Retry ${n}?`, yes: say`Retry ${n}`, effect: say`They are set back to PENDING and published again.` }),
    discard: n => ({ title: say`Discard ${n}?`, yes: say`Discard ${n}`, effect: say`They leave the table and go to the table of failed messages; they are not published.` }),
  }[what];
  try {
    const preview = await post("messages/" + what, { ...body, dry_run: true });
    const list = make("ul", { class: "list" }, preview.messages.slice(0, 20).map(m => make("li", null, make("b", null, m.message_id), " " + (m.topic || "") + " ", make("span", { class: "soft" }, m.reason || ""))));
    const { title, yes: agree, effect } = words(plural(preview.matched, "message"));
    const yes = await confirm(title, [
      make("p", null, say`${plural(preview.matched, "row")} of ${preview.table}.` + " " + effect), ...(preview.more ? [make("p", { class: "warn" }, say`More rows match; one order takes ${number(body.limit)}. Repeat it for the others.`)] : []),
      ...(preview.notes || []).map(n => make("p", null, rich(n))), ...(preview.refused || []).map(r => make("p", { class: "bad" }, r.ref + ": " + told(r.reason))), list,
      ...(preview.matched > preview.messages.length ? [make("p", { class: "soft" }, say`and ${number(preview.matched - preview.messages.length)} more`)] : []),
    ], preview.matched ? agree : "", what === "discard");
    if (!yes || !preview.matched) return "";
    const answer = await post("messages/" + what, body);
    const done = plural(answer.changed, "message"), left = answer.changed < answer.matched ? say`; ${number(answer.matched - answer.changed)} had changed meanwhile and were left alone` : "";
    return (what === "retry" ? say`${done} set back to PENDING` : say`${done} discarded`) + left;
  } catch (e) {
    await confirm(say`That did not work`, [make("p", null, rich(e.message))]);
    return "";
  }
}
