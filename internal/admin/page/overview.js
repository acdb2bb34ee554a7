// The view of the relay as it is now.
import { $, make, text, fill, definitions, headings, handbook, confirm, rich } from "./dom.js";
import { get, post } from "./api.js";
import { say, told } from "./language.js";
import { number, bytes, seconds, milliseconds, perSecond, place, when, plural } from "./format.js";

const states = () => [["pending", say`pending`], ["delayed", say`due later`], ["sending", say`sending`], ["sent", say`sent`], ["failed", say`failed`], ["held", say`other states`]];
const ages = () => [["oldest_pending_seconds", say`oldest pending`], ["oldest_sending_seconds", say`oldest claim`], ["longest_retry_seconds", say`longest wait for a retry`], ["sampled_seconds", say`counted`]];
let gapsShown = -1, paused = null;

export function start() {
  $("sweep").onclick = () => act(say`sweep started`, "sweep");
  $("pause").hidden = false;
  $("pause").onclick = pause;
  $("retention-now").onclick = () => act(say`a pass of the retention started`, "retention");
}

export function show(s) {
  paused = s.paused || null;
  text("pause", paused ? say`Resume` : say`Pause…`);
  tiles(s);
  path(s.positions);
  rows(s.tables || []);
  keys(s.waiting_keys);
  topics(s);
  details(s);
  if (s.gaps_open !== gapsShown) { gapsShown = s.gaps_open; gaps(); }
}

function tiles(s) {
  const t = s.throughput, src = s.source, f = s.in_flight, sum = name => (s.tables || []).reduce((n, table) => n + ((table.rows || {})[name] || 0), 0);
  const failed = sum("failed"), oldest = Math.max(0, ...(s.tables || []).map(table => table.oldest_pending_seconds || 0));
  text("lag", seconds(src.lag_seconds), "big" + (src.lag_seconds > 60 ? " warn" : ""));
  text("lag-more", src.reader_state === "connected" ? say`${bytes(src.behind_bytes)} behind` : say`the binlog is not being read`);
  text("rate", perSecond(t.rate_per_second));
  text("rate-more", say`${number(t.published_total)} since the start`);
  text("latency", t.latency_p99_ms < 1000 ? number(t.latency_p50_ms) + " / " + milliseconds(t.latency_p99_ms) : milliseconds(t.latency_p50_ms) + " / " + milliseconds(t.latency_p99_ms));
  text("waiting", number(sum("pending")));
  text("waiting-more", [...(sum("delayed") ? [say`${number(sum("delayed"))} due later`] : []), oldest ? say`oldest ${seconds(oldest)}` : say`none is late`].join(", "));
  text("failed", number(failed), "big" + (failed ? " bad" : ""));
  text("failed-more", t.failed_total ? say`${number(t.failed_total)} since the start` : say`none since the start`);
  text("inflight", number(f.messages));
  text("inflight-more", say`of ${number(f.max_messages)}, ${bytes(f.bytes)}`);
}

function path(p) {
  const stations = [[say`server`, say`end of the log`, p.server], [say`read`, say`read from the stream`, p.read], [say`offered`, say`given to the pipeline`, p.offered], [say`settled`, say`acknowledged or deferred`, p.settled], [say`checkpoint`, say`on disk; a restart reads from here`, p.checkpoint]];
  fill("path", stations.map(([name, what, at], i) => {
    const before = i ? stations[i - 1][2] : null;
    const behind = before && before.file && before.file === at.file && before.pos > at.pos ? before.pos - at.pos : 0;
    return make("li", { class: behind ? "behind" : null, title: at.gtid || null }, make("strong", null, name), make("span", { class: "mono" }, place(at) === "–" ? say`not known yet` : place(at)),
      make("span", { class: "soft" }, behind ? say`${bytes(behind)} behind ${stations[i - 1][0]}` : what));
  }));
}

function rows(tables) {
  const own = new Set(tables.flatMap(t => Object.keys(t.rows || {})));
  states().forEach(([st]) => own.delete(st));
  const all = [...states(), ...[...own].sort().map(st => [st, st])]; // those of the consumers last
  fill("rows-head", [headings([say`table`, ...all.map(s => s[1]), ...ages().map(a => a[1])])]);
  fill("rows", tables.length === 0 ? [make("tr", null, make("td", { class: "none", colspan: "11" }, say`The rows have not been counted yet.`))] : tables.map(t => make("tr", null,
    make("td", null, t.name),
    all.map(([st]) => {
      const n = t.rows ? t.rows[st] : undefined, kind = t.kinds ? t.kinds[st] : "";
      const words = kind === "estimate" ? say`about ${number(n)}` : kind === "at_least" ? say`at least ${number(n)}` : number(n);
      return make("td", { class: st === "failed" && n ? "bad" : null }, st === "failed" && n ? make("a", { href: "#messages?status=failed&table=" + encodeURIComponent(t.name) }, words) : words);
    }),
    ages().map(([age]) => make("td", null, age === "sampled_seconds" && t[age] !== null ? say`${seconds(t[age])} ago` : seconds(t[age]))))));
}

// keys are those of tables with ordering: key whose next row is neither sent nor FAILED; the relay shows the ten that wait longest.
function keys(k) {
  $("keys-box").hidden = k.keys === 0;
  $("keys-more").replaceChildren(say`Keys of tables with ordering: key that wait for an earlier row: ${number(k.keys)}, with ${plural(k.rows, "row")}.` + (k.keys > k.first.length ? " " + say`These wait longest.` : "") + " ", ...rich("docs/operations/rows.md, A key waits"));
  fill("keys-head", [headings(["key", "topic", say`table`, say`waits for`, say`since`, say`rows`, say`why`])]);
  fill("keys", k.first.map(w => make("tr", null, make("td", null, w.key), make("td", null, w.topic), make("td", null, w.table),
    make("td", null, make("a", { href: "#messages?" + new URLSearchParams({ table: w.table, ref: w.message_id }) }, w.message_id)),
    make("td", null, when(w.since)), make("td", null, number(w.rows)), make("td", { class: "wrap" }, told(w.reason) || "–"))));
}

function topics(s) {
  const suspended = new Map((s.sink.suspended_topics || []).map(t => [t.topic, t.reason])), list = (s.throughput.topics || []).slice();
  suspended.forEach((_, topic) => { if (!list.some(t => t.topic === topic)) list.unshift({ topic, rate_per_second: 0, errors_per_second: 0, published_total: 0, errors_total: 0 }); });
  fill("topics-head", [headings(["topic", say`published`, say`errors`, say`published in all`, say`errors in all`, say`state`])]);
  fill("topics", list.length === 0 ? [make("tr", null, make("td", { class: "none", colspan: "6" }, say`Nothing has been published since the start.`))] : list.map(t => make("tr", null,
    make("td", null, t.topic), make("td", null, perSecond(t.rate_per_second)), make("td", { class: t.errors_per_second ? "bad" : null }, perSecond(t.errors_per_second)),
    make("td", null, number(t.published_total)), make("td", null, number(t.errors_total)),
    suspended.has(t.topic) ? make("td", { class: "bad", title: suspended.get(t.topic) }, make("a", { href: handbook("broker", "A topic is missing") }, say`suspended`), say`; its rows wait`) : make("td", null, say`open`))));
}

function details(s) {
  const src = s.source, f = s.in_flight, t = s.throughput, r = s.retention;
  fill("source", definitions([[say`server`, src.address], [say`identity`, src.server || "–"], [say`reader`, src.reader_state, src.reader_state === "connected" ? null : "bad"],
    [say`behind`, bytes(src.behind_bytes)], ...(s.lease ? [[say`lease`, (s.lease.state === "active" ? say`active, valid for ${seconds(s.lease.valid_seconds)}` : s.lease.state) + (s.lease.error ? ": " + told(s.lease.error) : ""), s.lease.state === "lapsed" ? "bad" : null]] : []), [say`last event`, src.last_event_seconds === null ? "–" : say`${seconds(src.last_event_seconds)} ago`],
    [say`checkpoint`, s.positions.checkpoint_age_seconds === null ? say`none yet` : say`${seconds(s.positions.checkpoint_age_seconds)} old`]].concat(src.error ? [[say`error`, told(src.error), "bad"]] : [])));
  fill("sink", definitions([[say`kind`, s.sink.kind], [say`breaker`, s.sink.breaker === "closed" ? say`closed: the broker takes messages` : s.sink.breaker === "lease-not-held" ? say`nothing is sent: the lease is not held` : say`${s.sink.breaker}: the broker takes no messages`, s.sink.breaker === "closed" ? null : "bad"]]
    .concat(s.sink.reason ? [[say`reason`, told(s.sink.reason)]] : [], (s.sink.suspended_topics || []).map(p => [say`suspended topic`, p.topic + ": " + p.reason, "bad"]),
      s.waiting_keys.keys ? [[say`waiting keys`, number(s.waiting_keys.keys), "warn"]] : [])));
  fill("flight", definitions([[say`messages`, say`${number(f.messages)} of ${number(f.max_messages)}`], [say`bytes`, say`${bytes(f.bytes)} of ${bytes(f.max_bytes)}`], [say`waiting for their status`, number(f.ack_pending)], [say`memory`, bytes(s.memory_bytes || null)],
    [say`published`, number(t.published_total)], [say`retried`, number(t.retried_total)], [say`failed`, number(t.failed_total), t.failed_total ? "bad" : null], [say`left to the sweep`, number(t.deferred_total)], [say`published by sweeps`, number(t.swept_total)]]));
  const sweep = s.sweep.running ? say`running` : s.sweep.last_seconds === null ? say`not run yet` : say`${seconds(s.sweep.last_seconds)} ago, handed ${plural(s.sweep.last_rows, "row")} to the sink`;
  fill("sweeps", definitions([[say`last sweep`, sweep], [say`retention`, !r ? say`off: no row ever leaves a table` : r.running ? say`running, ${plural(r.rows, "row")} so far` : r.last_seconds === null ? say`no pass yet` : say`last pass ${seconds(r.last_seconds)} ago, ${plural(r.rows, "row")} left`]]
    .concat(paused ? [[say`intake`, say`paused by ${paused.by} since ${when(paused.since)}` + (paused.reason ? ": " + paused.reason : ""), "warn"]] : [], r && r.paused ? [[say`retention waits`, told(r.paused), "warn"]] : [], r && r.error ? [[say`retention`, told(r.error), "bad"]] : [])));
  $("retention-now").hidden = !r;
}

export async function gaps() {
  try {
    const list = (await get("gaps")).slice(-20).reverse();
    fill("gaps", list.length === 0 ? [make("li", { class: "soft" }, say`None: every part of the log was read.`)] : list.map(gap));
  } catch (e) {
    gapsShown = -1; // again with the next status
    text("said", e.message);
  }
}

function gap(g) {
  const li = make("li", null, make("strong", null, g.cause), " " + when(g.at) + ": " + say`from ${g.from.file ? g.from.file + ":" + g.from.pos : say`the beginning`} to ${g.to.file + ":" + g.to.pos}` + " ");
  if (g.acknowledged) li.append(make("span", { class: "soft" }, say`(acknowledged)`));
  else li.append(make("button", { type: "button", class: "act own", "aria-label": say`Acknowledge gap ${g.id}`, onclick: () => act(say`gap ${g.id} acknowledged`, "gaps/" + g.id + "/ack", gaps) }, say`Acknowledge`));
  return li;
}

// pause asks for a reason, which status and alerts show to the colleagues; a resume needs none.
async function pause() {
  if (paused) { await act(say`resumed`, "resume"); return; }
  const reason = make("input", { id: "pause-reason", maxlength: "200", autocomplete: "off" });
  const yes = await confirm(say`Pause the relay?`, [make("p", null, say`It reads no log, sweeps nothing and publishes nothing until it is resumed. Rows wait in the table; nothing is lost.`), make("p", { class: "fields" }, make("label", null, say`Why (shown in status and alerts)`, reason))], say`Pause`);
  if (yes) await act(say`paused`, "pause", null, { reason: reason.value.trim() });
}

async function act(done, url, after, body) {
  try { await post(url, body); text("said", done); if (after) await after(); } catch (e) { text("said", e.message); }
}
