// The charts: what they show, and where their points come from. The relay keeps a day in steps of ten seconds; what this page has seen
// itself is finer and is put behind it.
import { $, make, text, fill } from "./dom.js";
import { get } from "./api.js";
import { number, bytes, seconds, milliseconds, perSecond, short, when, plural } from "./format.js";
import { say, told } from "./language.js";
import { Plot } from "./plot.js";

const ranges = [["10m", "10 min", 600], ["1h", "1 h", 3600], ["6h", "6 h", 21600], ["24h", "24 h", 86400]];

// A chart's least is the lowest top of its axis, so that noise does not look like news.
const charts = () => [
  { title: say`Published`, least: 1, format: perSecond, axis: short, series: [["sent_per_second", say`all`, "s1", true], ["swept_per_second", say`by sweeps`, "s2"]] },
  { title: say`Not published`, least: 1, format: perSecond, axis: short, series: [["retried_per_second", say`to retry`, "s2"], ["deferred_per_second", say`for the sweep`, "s3"], ["failed_per_second", say`FAILED`, "s5"]] },
  { title: say`Commit to broker`, least: 2, format: milliseconds, axis: v => v < 1000 ? short(v) + " ms" : seconds(v / 1000), series: [["latency_p50_ms", "p50", "s1"], ["latency_p99_ms", "p99", "s2"]] },
  { title: say`Lag behind the binlog`, least: 1, format: seconds, axis: v => v < 120 ? short(v) + " s" : seconds(v), series: [["lag_seconds", say`lag`, "s1", true]] },
  { title: say`Rows`, least: 5, format: number, axis: short, series: [["pending_rows", say`pending`, "s1", true], ["delayed_rows", say`due later`, "s3"], ["sending_rows", say`sending`, "s4"], ["failed_rows", say`FAILED`, "s5"]] },
  { title: say`Memory`, least: 32 << 20, format: bytes, axis: v => short(v / (1 << 20)) + " Mi", steps: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384].map(n => n * 2 ** 20), series: [["memory_bytes", say`resident`, "s4", true]] },
];

let range = localStorage.getItem("range") || "10m";
if (!ranges.some(r => r[0] === range)) range = "10m";
let past = { at: [], series: {}, marks: [] }; // of the relay
const live = []; // of this page: { at, totals, values }
let plots = [], asked = 0, pending = false;

export function start() {
  fill("ranges", ranges.map(([id, name]) => make("button", { type: "button", "aria-pressed": String(id === range), onclick: () => choose(id) }, name)));
  plots = charts().map(c => new Plot(c, at => text("charts-at", at ? say`at ${at}` : "")));
  $("charts").replaceChildren(...plots.map(p => p.figure));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach(p => p.colours()));
  document.addEventListener("visibilitychange", () => { if (!document.hidden) { asked = 0; refresh(); } });
}

function choose(id) {
  range = id;
  localStorage.setItem("range", id);
  [...$("ranges").children].forEach((b, i) => b.setAttribute("aria-pressed", String(ranges[i][0] === id)));
  asked = 0;
  refresh();
}

// add takes what the relay shows now.
export function add(status) {
  const at = Date.now() / 1000, last = live[live.length - 1], t = status.throughput;
  if (last && last.uptime > status.uptime_seconds) live.length = 0; // another process
  const totals = { swept: t.swept_total, failed: t.failed_total, retried: t.retried_total, deferred: t.deferred_total };
  const old = live.findLast(l => at - l.at >= 5) || live[0];
  const rate = name => old ? Math.max(0, totals[name] - old.totals[name]) / (at - old.at) : 0;
  const rows = name => (status.tables || []).reduce((sum, table) => table.rows && table.rows[name] !== undefined ? (sum || 0) + table.rows[name] : sum, null);
  live.push({
    at, totals, uptime: status.uptime_seconds, values: {
      sent_per_second: t.rate_per_second, swept_per_second: rate("swept"), failed_per_second: rate("failed"), retried_per_second: rate("retried"), deferred_per_second: rate("deferred"),
      latency_p50_ms: t.latency_p50_ms, latency_p99_ms: t.latency_p99_ms, lag_seconds: status.source.lag_seconds, memory_bytes: status.memory_bytes || null,
      pending_rows: rows("pending"), delayed_rows: rows("delayed"), sending_rows: rows("sending"), failed_rows: rows("failed"),
    },
  });
  while (live.length > 1 && at - live[0].at > 600) live.shift();
  refresh();
}

async function refresh() {
  const span = ranges.find(r => r[0] === range)[2], every = span > 3600 ? 60 : 10;
  if (!pending && !document.hidden && Date.now() / 1000 - asked >= every) {
    pending = true;
    asked = Date.now() / 1000;
    try {
      past = await get("history", { from: range });
      text("charts-said", "");
    } catch (e) {
      text("charts-said", say`The past cannot be read: ${e.message}`);
    }
    pending = false;
  }
  if (!document.hidden && !$("view-overview").hidden) draw(span);
}

function draw(span) {
  const now = Date.now() / 1000, from = now - span;
  // The finer points of this page replace the relay's in the short range; in the others the newest one goes behind them.
  const own = span <= 600 ? live : live.slice(-1), first = own.length ? own[0].at : Infinity;
  // The relay's newest step is not over yet: it counts up to now.
  const kept = past.at.map((at, i) => [Math.min(at, at - past.step_seconds < first ? first - 1 : at), i]).filter(([at]) => at >= from && at < first);
  const at = [...kept.map(k => k[0]), ...own.map(l => l.at)];
  const values = key => {
    const old = past.series[key] || [];
    return [...kept.map(([, i]) => old[i] ?? null), ...own.map(l => l.values[key] ?? null)];
  };
  const marks = (past.marks || []).map(m => ({ ...m, x: Date.parse(m.at) / 1000, tone: tone(m) })).filter(m => m.x >= from);
  // A relay that is younger than the range fills the chart all the same.
  const begin = Math.max(from, Math.min(at[0] ?? now, ...marks.map(m => m.x), now - 60) - (now - from) / 200);
  plots.forEach(p => p.show([begin, now], at, p.chart.series.map(s => values(s[0])), marks));
  list(marks);
}

function tone(mark) {
  if (mark.kind === "gap" && mark.text.includes("first_start")) return "info";
  if (mark.kind === "gap" || mark.kind === "failover" || / no messages|not being read|^suspended/.test(mark.text)) return "bad";
  return mark.kind === "lease" && !mark.text.endsWith("active") ? "warn" : mark.kind === "start" || mark.kind === "checkpoint" ? "info" : "ok";
}

// list is the marks as text, for who cannot see or point.
function list(marks) {
  text("marks-summary", marks.length ? say`What happened: ${plural(marks.length, "event")}` : say`What happened: nothing in this time`);
  fill("marks", marks.slice(-100).reverse().map(m => make("li", null, make("span", { class: "dot " + m.tone }), make("time", { datetime: m.at }, when(m.at)), told(m.text))));
}

