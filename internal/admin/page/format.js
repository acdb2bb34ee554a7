// How numbers and times are written. "–" stands for what is not known.
import { counted } from "./language.js";

const none = "–";
const unknown = n => n === null || n === undefined || Number.isNaN(n);

export const number = n => unknown(n) ? none : n.toLocaleString("en", { maximumFractionDigits: Math.abs(n) < 10 ? 2 : Math.abs(n) < 100 ? 1 : 0 });

export function bytes(n) {
  if (unknown(n)) return none;
  let i = 0;
  while (n >= 1024 && i < 4) { n /= 1024; i++; }
  return number(n) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][i];
}

export function seconds(s) {
  if (unknown(s)) return none;
  if (s < 120) return number(s) + " s";
  if (s < 7200) return number(s / 60) + " min";
  if (s < 172800) return number(s / 3600) + " h";
  return number(s / 86400) + " d";
}

export const milliseconds = n => unknown(n) ? none : n < 1000 ? number(n) + " ms" : seconds(n / 1000);
export const perSecond = n => unknown(n) ? none : number(n) + "/s";

// short is for axes: 12k, 3.4M.
export const short = n => unknown(n) ? "" : n.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });

const two = n => String(n).padStart(2, "0");
export const clock = t => two(t.getHours()) + ":" + two(t.getMinutes()) + ":" + two(t.getSeconds());
// when is a time as text: of today the clock alone.
export function when(text) {
  if (!text) return none;
  const t = new Date(text);
  if (Number.isNaN(t.getTime())) return text;
  const day = t.getFullYear() + "-" + two(t.getMonth() + 1) + "-" + two(t.getDate());
  return t.toDateString() === new Date().toDateString() ? clock(t) : day + " " + clock(t);
}

export const place = p => !p ? none : p.file ? p.file + ":" + p.pos : p.gtid || none;
export const plural = (n, one, many) => counted(number(n), n === 1 ? one : many || one + "s");
