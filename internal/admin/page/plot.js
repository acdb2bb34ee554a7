// One chart: axes, values under the pointer or the arrow keys, marks for what happened. It draws with uPlot (uplot.js).
import { make } from "./dom.js";
import { clock, when } from "./format.js";
import { say, told } from "./language.js";

const height = 170;
const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

export class Plot {
  constructor(chart, pointed) {
    this.chart = chart;
    this.pointed = pointed; // is called with the time under the pointer, or ""
    this.marks = [];
    this.x = [0, 1];
    this.kept = null; // the time that the keys have chosen
    this.data = [[], ...chart.series.map(() => [])];
    this.values = chart.series.map(([, name]) => make("b", null, "–"));
    this.legend = make("span", { class: "legend" }, chart.series.map(([, name, colour], i) => make("span", null, make("span", { class: "key " + colour }), name + " ", this.values[i])));
    this.plot = make("div", {
      class: "plot", tabindex: "0", role: "slider", "aria-label": say`${chart.title}, chart: the arrow keys go through its values`, "aria-valuemin": "0",
      onkeydown: e => this.key(e), onblur: () => this.u && this.point(null), onpointermove: () => { this.kept = null; },
    });
    this.figure = make("figure", { class: "card chart" }, make("figcaption", null, make("strong", null, chart.title), this.legend), this.plot);
    new ResizeObserver(() => this.u && this.plot.clientWidth && this.u.setSize({ width: this.plot.clientWidth, height })).observe(this.plot);
  }

  show(x, at, series, marks) {
    this.x = x;
    this.marks = marks;
    this.data = [at, ...series];
    this.figure.dataset.points = String(at.length);
    if (!this.u) {
      if (this.plot.clientWidth) this.build();
    } else {
      this.u.setData(this.data, false);
      this.u.setScale("x", { min: x[0], max: x[1] });
      // uPlot keeps the position of its cursor, which is another time once the chart has moved. It draws in a microtask.
      if (this.kept !== null) queueMicrotask(() => this.follow());
    }
    this.read();
  }

  build() {
    this.u = new uPlot(this.options(), this.data, this.plot);
  }

  // colours builds the chart again in the colours of the present scheme.
  colours() {
    if (this.u) this.u.destroy();
    this.u = null;
    if (this.plot.clientWidth) this.build();
  }

  options() {
    const c = this.chart, soft = css("soft"), grid = { stroke: css("grid"), width: 1 }, font = "11px system-ui, sans-serif";
    const axis = more => Object.assign({ stroke: soft, font, grid, ticks: { show: false } }, more);
    return {
      width: this.plot.clientWidth, height, legend: { show: false }, padding: [10, 18, 0, 0],
      cursor: { drag: { x: false, y: false }, y: false, sync: { key: "page" }, points: { size: 7 } },
      scales: { x: { time: true, range: () => this.x }, y: { range: (u, low, high) => [0, Math.max(c.least, (high || 0) * 1.12)] } },
      axes: [
        axis({ size: 26, space: 64, values: (u, ticks) => ticks.map(t => this.tick(t)) }),
        axis(Object.assign({ size: 58, space: 30, values: (u, ticks) => ticks.map(c.axis) }, c.steps ? { incrs: c.steps } : {})),
      ],
      series: [{}, ...c.series.map(([key, label, colour, filled]) => ({
        label, stroke: css(colour), width: 1.6, fill: filled ? css(colour) + "22" : undefined, points: { show: false }, spanGaps: false,
      }))],
      hooks: { draw: [u => this.drawMarks(u)], setCursor: [() => this.read()] },
    };
  }

  tick(t) {
    const text = clock(new Date(t * 1000));
    return this.x[1] - this.x[0] > 900 ? text.slice(0, 5) : text;
  }

  drawMarks(u) {
    const { ctx } = u, scale = devicePixelRatio;
    ctx.save();
    for (const m of this.marks) {
      const x = u.valToPos(m.x, "x", true);
      if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = css({ bad: "bad", ok: "ok", warn: "warn", info: "accent" }[m.tone]);
      ctx.lineWidth = scale;
      ctx.setLineDash([3 * scale, 3 * scale]);
      ctx.beginPath(); ctx.moveTo(x, u.bbox.top); ctx.lineTo(x, u.bbox.top + u.bbox.height); ctx.stroke();
      ctx.beginPath(); ctx.moveTo(x - 4 * scale, u.bbox.top - 7 * scale); ctx.lineTo(x + 4 * scale, u.bbox.top - 7 * scale); ctx.lineTo(x, u.bbox.top); ctx.fill();
    }
    ctx.restore();
  }

  // read shows the values under the pointer, else the newest ones.
  read() {
    const at = this.data[0], pointed = this.u ? this.u.cursor.idx : null, i = pointed ?? at.length - 1;
    if (i < 0 || i >= at.length) return;
    this.chart.series.forEach((s, n) => { const v = this.chart.format(this.data[n + 1][i]); if (this.values[n].textContent !== v) this.values[n].textContent = v; });
    const moment = when(new Date(at[i] * 1000).toISOString());
    const near = this.u && this.marks.findLast(m => Math.abs(this.u.valToPos(m.x, "x") - this.u.valToPos(at[i], "x")) < 6);
    if (this.u && pointed !== null && pointed !== undefined) this.pointed(moment + (near ? ": " + told(near.text) : ""));
    else this.pointed("");
    this.plot.setAttribute("aria-valuemax", String(at.length - 1));
    this.plot.setAttribute("aria-valuenow", String(i));
    // Spoken when it changes: not while the newest value moves by itself.
    if (document.activeElement !== this.plot || pointed !== null) {
      this.plot.setAttribute("aria-valuetext", moment + ": " + this.chart.series.map((s, n) => s[1] + " " + this.chart.format(this.data[n + 1][i])).join(", ") + (near ? "; " + told(near.text) : ""));
    }
  }

  point(i) {
    this.kept = i === null ? null : this.data[0][i];
    if (i === null) this.u.setCursor({ left: -10, top: -10 });
    else this.follow();
  }

  follow() {
    if (this.u && this.kept !== null) this.u.setCursor({ left: Math.max(0, this.u.valToPos(this.kept, "x")), top: height / 3 });
  }

  key(e) {
    const last = this.data[0].length - 1, step = Math.max(1, Math.round(last / 60));
    if (!this.u || last < 0) return;
    const i = this.u.cursor.idx ?? last;
    const to = { ArrowLeft: i - step, ArrowRight: i + step, ArrowDown: i - step, ArrowUp: i + step, Home: 0, End: last, PageUp: i - 10 * step, PageDown: i + 10 * step }[e.key];
    if (e.key === "Escape") this.point(null);
    if (to === undefined) return;
    e.preventDefault();
    this.point(Math.min(last, Math.max(0, to)));
  }
}
