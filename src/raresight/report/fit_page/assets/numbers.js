// How numbers are written, the same in the explorer and in the charts.
const numbers = (() => {
  "use strict";
  const SPACE = "\u00a0";

  function significant(x, digits) {
    if (x === 0) return "0";
    const places = Math.min(12, Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(x)) + 1e-12)));
    const text = x.toFixed(places);
    return places > 0 && digits > 3 ? text.replace(/\.?0+$/, "") : text;
  }

  function percent(x, digits = 3) {
    if (!Number.isFinite(x)) return "none";
    return `${significant(x * 100, digits)}${SPACE}%`;
  }

  // Ticks and typed values: no padding zeros.
  function shortPercent(x) {
    return `${Number((x * 100).toPrecision(3))}`.includes("e")
      ? `${(x * 100).toFixed(9).replace(/0+$/, "")}${SPACE}%`
      : `${Number((x * 100).toPrecision(3))}${SPACE}%`;
  }

  function count(x) {
    if (!Number.isFinite(x)) return "none";
    const rounded = x >= 100 || Number.isInteger(x) ? Math.round(x).toString() : significant(x, 3);
    const [whole, rest] = rounded.split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
    return rest === undefined ? grouped : `${grouped}.${rest}`;
  }

  // "1 row", "2 rows".
  function counted(x, noun) {
    return `${count(x)} ${noun}${x === 1 ? "" : "s"}`;
  }

  function signed(x, places) {
    return `${x < 0 ? "\u2212" : ""}${Math.abs(x).toFixed(places)}`;
  }

  return { percent, shortPercent, count, counted, signed };
})();
