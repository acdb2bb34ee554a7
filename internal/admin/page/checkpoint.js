// The view of the checkpoint: where a restart reads from, where it was before, and a move with its preview.
import { $, make, fill, text, confirm, headings, rich, definitions } from "./dom.js";
import { get, post, download } from "./api.js";
import { say, told } from "./language.js";
import { number, bytes, place, plural, when } from "./format.js";

const kinds = () => [["time", say`a time`, say`2026-01-31 14:05 or 15m`], ["gtid", say`a GTID set`, say`0-1-100 or uuid:1-5`], ["file", say`a file and an offset`, "binlog.000002:154"], ["latest", say`the end of the log`, ""], ["earliest", say`the oldest position that is left`, ""]];

export function start() {
  const choice = make("fieldset", { class: "choices" }, make("legend", { class: "spoken" }, say`Where to`), kinds().map(([id, label, hint], i) => make("label", null,
    make("input", { type: "radio", name: "to", value: id, checked: i === 0 }), label, hint ? make("input", { id: "c-" + id, placeholder: hint, "aria-label": label, autocomplete: "off", spellcheck: "false", onfocus: e => { e.target.closest("label").firstChild.checked = true; } }) : "")));
  $("view-checkpoint").append(
    make("section", { class: "card", "aria-labelledby": "h-now" }, make("h2", { id: "h-now" }, say`Checkpoint`), make("dl", { id: "c-now" })),
    make("section", { class: "card act", "aria-labelledby": "h-move" }, make("h2", { id: "h-move" }, say`Move it`),
      make("p", { class: "soft" }, say`Back: the log is read again, and what is SENT is not sent again. Forward: what lies between is left to a full sweep. The old position stays below and can be returned to.` + " ", make("a", { href: say`docs/runbooks/reset-checkpoint` }, say`Runbook: Reset a checkpoint`)),
      make("form", { onsubmit: e => { e.preventDefault(); ask(); } }, choice,
        make("p", null, make("label", null, make("input", { type: "checkbox", id: "c-again", onchange: e => { $("c-limit-box").hidden = !e.target.checked; } }), " " + say`Move nothing: publish again what is SENT between there and the checkpoint`),
          make("label", { id: "c-limit-box", hidden: true }, say`, rows at most:` + " ", make("input", { id: "c-limit", type: "number", min: "1", max: "10000", value: "1000" }))),
        make("p", { class: "actions" }, make("button", { class: "primary" }, say`Preview…`))), make("p", { id: "c-said", class: "said", role: "status" })),
    make("section", { class: "card", "aria-labelledby": "h-past" }, make("h2", { id: "h-past" }, say`Positions of the past`), make("p", { id: "c-read", class: "bad", role: "status" }),
      make("div", { class: "scroll words", tabindex: "0", role: "region", "aria-labelledby": "h-past" }, make("table", null, make("thead", { id: "c-head" }), make("tbody", { id: "c-rows" })))),
    make("section", { class: "card act own", "aria-labelledby": "h-state" }, make("h2", { id: "h-state" }, say`Move to another machine`),
      make("p", { class: "soft" }, say`The state has the position, its history, gaps and the rows that are sent or wait, and no body. This command puts it into another directory, which a relay must not be using:` + " ", make("code", null, "canal-outbox checkpoint import"), ". ", make("a", { href: say`docs/runbooks/move-machine` }, say`Runbook: Move to another machine`)),
      make("p", { class: "actions" }, make("button", { type: "button", id: "c-export", onclick: save }, say`Download the state`)), make("p", { id: "c-saved", class: "said", role: "status" })));
  fill("c-head", [headings([say`number`, say`at`, say`position`, say`why`, ""])]);
}

export async function show() {
  try {
    const [now, past] = await Promise.all([get("checkpoint"), get("checkpoint/history", { limit: 50 })]);
    fill("c-now", definitions([[say`position`, place(now.position)], [say`GTID set`, now.position.gtid || "–"], [say`of the server`, now.source || say`none yet`], [say`journal`, say`${number(now.journal)} published, their status not yet in the table`]]));
    $("c-rows").replaceChildren(...past.map(e => make("tr", null, make("td", null, number(e.number)), make("td", null, when(e.at)), make("td", { class: "wrap", title: e.position.gtid || null }, place(e.position)), make("td", { class: "wrap" }, told(e.reason) || say`the ordinary way forward`),
      make("td", { class: "act" }, make("button", { type: "button", "aria-label": say`Return to position ${e.number}`, onclick: () => move({ entry: e.number }) }, say`Return…`)))));
    text("c-read", "");
  } catch (e) {
    text("c-read", e.message);
  }
}

function ask() {
  const kind = $("view-checkpoint").querySelector("input[name=to]:checked").value, field = $("c-" + kind), value = field ? field.value.trim() : "";
  if (field && !value) { text("c-said", say`Write where to: ${field.placeholder}.`, "said bad"); field.focus(); return; }
  const what = $("c-again").checked ? { republish: true, limit: Number($("c-limit").value) } : {};
  if (kind !== "file") { move({ [kind]: field ? value : true, ...what }); return; }
  const [, file, pos] = value.match(/^(.+):(\d+)$/) || [];
  if (!file) { text("c-said", say`Write the file and the offset with a colon between: binlog.000002:154.`, "said bad"); field.focus(); return; }
  move({ file, pos: Number(pos), ...what });
}

// between is what lies between the two positions, by what the tables show now.
function between(b) {
  const count = n => b.at_least ? say`at least ${number(n)}` : number(n);
  return [[say`transactions between`, count(b.transactions) + (b.purged ? say`, as far as the server still has them` : "")], [say`rows in them`, count(b.rows)], [say`would be sent`, number(b.pending), b.pending ? "warn" : null],
    [say`nothing to do`, say`${number(b.settled)} settled already` + (b.gone ? say`, ${number(b.gone)} gone from their table` : "")]].concat(b.unknown ? [[say`left to the sweep`, number(b.unknown)]] : []);
}

async function move(target) {
  text("c-said", say`looking at the log …`, "said soft");
  try {
    const p = await post("checkpoint", { ...target, dry_run: true });
    text("c-said", "");
    const way = p.bytes === null ? "" : p.bytes === 0 ? say`no change` : p.bytes < 0 ? say`${bytes(-p.bytes)} back` : say`${bytes(p.bytes)} forward`;
    const again = plural(p.republish, "row");
    const yes = await confirm(target.republish ? say`Publish ${again} again?` : say`Move the checkpoint?`, [
      make("dl", null, definitions([[say`from`, place(p.from)], [say`to`, place(p.to)]].concat(way ? [[say`that is`, way]] : [], p.between ? between(p.between) : [], (p.rows || []).map(r => [r.table, say`${number(r.pending)} pending, ${number(r.sending)} sending, ${number(r.failed)} FAILED`])))),
      make("ul", null, (p.notes || []).map(n => make("li", null, rich(n)))),
    ], !target.republish ? say`Move it` : p.republish ? say`Publish ${again} again` : "", target.republish || p.bytes > 0);
    if (!yes) return;
    const done = await post("checkpoint", target);
    text("c-said", target.republish ? say`${plural(done.republished, "row")} published again.` : say`The checkpoint was moved to ${place(p.to)}.`, "said");
    await show();
  } catch (e) {
    text("c-said", e.message, "said bad");
  }
}

// save hands the exported state to the browser as a file.
async function save() {
  text("c-saved", say`reading the state …`, "said soft");
  try {
    await download("state", "canal-outbox-state.jsonl");
    text("c-saved", say`The state is in canal-outbox-state.jsonl.`, "said");
  } catch (e) {
    text("c-saved", e.message, "said bad");
  }
}
