// The page: reads what was written into it, keeps the state of the explorer, draws and follows.
(() => {
  "use strict";
  const { percent, shortPercent, count, counted, signed } = numbers;
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;

  // ---- what was written into the page

  function bytesOf(base64) {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
    return bytes;
  }

  const raw = JSON.parse($("content").textContent);
  const curve = {
    thresholds: new Float64Array(bytesOf(raw.curve.thresholds).buffer),
    tp: new Uint32Array(bytesOf(raw.curve.tp).buffer),
    fp: new Uint32Array(bytesOf(raw.curve.fp).buffer),
    positives: raw.curve.positives,
    negatives: raw.curve.negatives,
    exactToFpr: raw.curve.exactToFpr,
  };
  const content = { ...raw, curve };
  const heldOutPrior = curve.positives / (curve.positives + curve.negatives);

  // ---- the explorer

  // `by` says what sets the operating point: "budget", "capacity" or "cost".
  const state = {
    by: "budget", budget: raw.fpr, prior: heldOutPrior, volume: 100000, capacity: NaN, missCost: NaN, falseAlertCost: NaN,
    index: 0, threshold: NaN,
  };
  // The slider runs from one false positive to a tenth of the negatives, and over a factor of ten at least.
  const high = Math.log10(Math.min(1, Math.max(0.1, 3 * raw.maxFpr, 10 / curve.negatives)));
  const slider = { low: Math.min(Math.log10(1 / curve.negatives), high - 1), high };

  function settle() {
    if (state.by === "capacity" && state.volume > 0 && state.capacity >= 0) {
      state.index = explorer.withinCapacity(curve, state.prior, state.volume, state.capacity);
    } else if (state.by === "cost" && state.missCost >= 0 && state.falseAlertCost >= 0) {
      state.index = explorer.cheapest(curve, state.prior, state.missCost, state.falseAlertCost);
    } else {
      state.by = "budget";
      state.index = explorer.withinBudget(curve, state.budget);
      // Who asks for all cases gets them, those below the last positive too.
      if (state.budget < 1) state.index = explorer.withoutIdleAlerts(curve, state.index);
    }
    state.threshold = explorer.thresholdAt(curve, state.index);
  }

  // Digits enough that what is shown, typed again, is the same budget to the sixth.
  function budgetText(x) {
    const text = String(Number((x * 100).toPrecision(6)));
    return text.includes("e") ? shortPercent(x) : `${text}\u00a0%`;
  }

  function thresholdText(threshold) {
    if (threshold === Infinity) return ["above every score", "no alert"];
    if (threshold === -Infinity) return ["below every score", "alert on every case"];
    return [signed(threshold, 4), `probability ${percent(explorer.probability(threshold), 4)}`];
  }

  function sliderAt(rate) {
    const place = (Math.log10(Math.max(rate, 1 / curve.negatives)) - slider.low) / (slider.high - slider.low);
    return Math.round(Math.min(1, Math.max(0, place)) * 1000);
  }

  function show() {
    const now = explorer.rates(curve, state.index, state.prior);
    const set = (id, text) => { $(id).textContent = text; };
    const [main, note] = thresholdText(state.threshold);
    set("out-recall", percent(now.recall));
    // The band is of the recall at a false-positive rate; at a threshold set otherwise it is a share of the positives.
    const within = now.alertShare === 0 ? null
      : state.by === "budget" ? explorer.bandAt(content.band, state.budget)
      : explorer.shareInterval(curve.tp[state.index], curve.positives, explorer.deviation(content.level));
    set("out-recall-note", within ? `${percent(content.level, 2)} interval about ${percent(within.low)} to ${percent(within.high)}` : "");
    set("out-caught", `${count(curve.tp[state.index])} of ${counted(curve.positives, "held-out positive")}`);
    set("out-precision", percent(now.precision));
    set("out-precision-note", now.alertShare === 0 ? "no alert is raised"
      : now.precision > 0 ? `one alert in ${count(1 / now.precision)} is true` : "no true alert");
    const kept = { budget: "keeps this budget", capacity: "keeps this capacity", cost: "costs less" }[state.by];
    set("no-alert", now.alertShare === 0 ? `No threshold ${kept} without giving up every alert: no alert is raised.` : "");
    set("out-fpr", percent(now.fpr));
    set("out-fpr-note", `${count(curve.fp[state.index])} of ${counted(curve.negatives, "held-out negative")}`);
    set("out-alerts", count(now.alertShare * 1e5));
    const daily = now.alertShare * state.volume;
    set("out-daily", state.volume > 0 ? count(daily) : "none");
    const over = daily - state.capacity;
    set("out-daily-note", !(state.capacity >= 0) ? `of ${counted(state.volume, "case")}`
      : over > 1e-9 ? `${count(over)} over the capacity` : `within the capacity of ${count(state.capacity)}`);
    const priced = state.missCost >= 0 && state.falseAlertCost >= 0;
    const cost = priced ? explorer.costOf(curve, state.index, state.prior, state.missCost, state.falseAlertCost) : NaN;
    set("out-cost", priced ? count(cost * 1e5) : "not set");
    set("out-cost-note", priced ? `without any alert ${count(state.prior * state.missCost * 1e5)}` : "give both costs");
    set("out-threshold", main);
    set("out-threshold-note", note);
    set("set-by", state.by === "capacity"
      ? `Set by the capacity of ${counted(state.capacity, "alert")} a day.`
      : state.by === "cost" ? "Set by the lowest expected cost." : `Set by a false-positive budget of ${budgetText(state.budget)}.`);
    const thinned = !explorer.isExact(curve, state.index);
    set("thinned", thinned ? `At rates from ${percent(curve.exactToFpr)} on the page keeps only some of the thresholds: the figures are `
      + "those of the nearest kept threshold within the limit, and a slightly lower one may do as well." : "");
    $("cheapest").disabled = !priced;
    $("reset-prior").hidden = state.prior === heldOutPrior;
    if (state.by !== "budget" || document.activeElement !== $("slider")) $("slider").value = sliderAt(state.by === "budget" ? state.budget : now.fpr);
    if (document.activeElement !== $("budget")) $("budget").value = state.by === "budget" ? budgetText(state.budget) : shortPercent(now.fpr);
    $("slider").setAttribute("aria-valuetext", `${shortPercent(state.by === "budget" ? state.budget : now.fpr)} of negatives`);
    // In full precision, for programs that read the page.
    Object.assign(root.dataset, { index: state.index, threshold: state.threshold, budget: state.budget, prior: state.prior });
  }

  let waiting = false;
  function changed() {
    settle();
    show();
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; follow(); });
  }

  // A field that cannot be read is marked and changes nothing.
  function field(id, read, allowed, use, empty) {
    const input = $(id);
    input.addEventListener("input", () => {
      const blank = input.value.trim() === "";
      const value = read(input.value);
      const good = blank ? empty !== undefined : allowed(value);
      input.setAttribute("aria-invalid", good ? "false" : "true");
      if (!good) return;
      if (blank) empty();
      else use(value);
      changed();
    });
  }

  const number = explorer.readNumber;
  const notNegative = (x) => x >= 0 && Number.isFinite(x);

  function wire() {
    $("slider").addEventListener("input", () => {
      const place = Number($("slider").value) / 1000;
      // Three significant digits, so that the budget shown is the budget used.
      state.budget = place === 0 && curve.negatives >= 10 ? 1 / curve.negatives
        : Number((10 ** (slider.low + place * (slider.high - slider.low))).toPrecision(3));
      state.by = "budget";
      $("budget").setAttribute("aria-invalid", "false");
      changed();
    });
    field("budget", explorer.readShare, (x) => x > 0 && x <= 1, (x) => { state.budget = x; state.by = "budget"; });
    $("budget").addEventListener("blur", () => { $("budget").setAttribute("aria-invalid", "false"); show(); });
    field("volume", number, (x) => x > 0 && Number.isFinite(x), (x) => { state.volume = x; });
    field("capacity", number, notNegative, (x) => { state.capacity = x; state.by = "capacity"; },
      () => { state.capacity = NaN; if (state.by === "capacity") state.by = "budget"; });
    field("prior", explorer.readShare, (x) => x > 0 && x < 1, (x) => { state.prior = x; });
    $("reset-prior").addEventListener("click", () => {
      state.prior = heldOutPrior;
      $("prior").value = budgetText(heldOutPrior);
      $("prior").setAttribute("aria-invalid", "false");
      changed();
    });
    const unpriced = (name) => () => { state[name] = NaN; if (state.by === "cost") state.by = "budget"; };
    field("miss-cost", number, notNegative, (x) => { state.missCost = x; }, unpriced("missCost"));
    field("alert-cost", number, notNegative, (x) => { state.falseAlertCost = x; }, unpriced("falseAlertCost"));
    $("cheapest").addEventListener("click", () => { state.by = "cost"; changed(); });
    $("restart").addEventListener("click", () => { state.budget = raw.fpr; state.by = "budget"; changed(); });
    $("prior").value = budgetText(heldOutPrior);
    $("volume").value = String(state.volume);
  }

  // ---- charts

  const drawnCharts = new Map();
  const forPaper = window.matchMedia("print");
  const config = {
    responsive: true, displaylogo: false,
    // These and no others: some of the library's own buttons lead to a server.
    modeBarButtons: [["toImage", "resetScale2d"]],
  };

  function lookOf(narrow) {
    const style = getComputedStyle(root);
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    return {
      text: of("text"), soft: of("soft"), grid: of("grid"), rule: of("rule"), card: of("card"), blue: of("blue"), orange: of("orange"),
      blueBand: of("blue-band"), orangeBand: of("orange-band"), font: style.getPropertyValue("font-family"), narrow,
      scale: [[0, of("scale-low")], [0.5, of("scale-middle")], [1, of("scale-high")]],
    };
  }

  function redraw() {
    if (!window.Plotly) return;
    for (const [div, make] of drawnCharts) {
      const figure = make(lookOf(div.clientWidth < 460));
      div.figure = figure;
      // Paper does not tell its width by a resize, so there the size is given.
      if (forPaper.matches) Object.assign(figure.layout, { width: div.clientWidth, height: div.clientHeight });
      else figure.layout.autosize = true;
      window.Plotly.react(div, figure.data, figure.layout, { ...config, displayModeBar: div.clientWidth < 460 ? false : "hover" });
    }
  }

  // The marker and the threshold line follow; the precision curve too, when the prior has changed.
  let shownPrior = heldOutPrior;
  function follow() {
    if (!window.Plotly || drawnCharts.size === 0) return;
    const now = explorer.rates(curve, state.index, state.prior);
    if (state.prior !== shownPrior) {
      shownPrior = state.prior;
      redraw();
      return;
    }
    for (const id of ["chart-roc", "chart-pr"]) {
      const div = $(id);
      window.Plotly.restyle(div, div.figure.marker(now), [div.figure.markerTrace]);
    }
    const look = lookOf($("chart-distribution").clientWidth < 460);
    window.Plotly.relayout($("chart-distribution"), charts.thresholdLine(content, state, look));
  }

  function chartPlaces() {
    drawnCharts.set($("chart-roc"), (look) => charts.roc(content, state, look));
    drawnCharts.set($("chart-pr"), (look) => charts.precisionRecall(content, state, look));
    drawnCharts.set($("chart-reliability"), (look) => charts.reliability(content, state, look));
    drawnCharts.set($("chart-distribution"), (look) => charts.distribution(content, state, look));
    const panels = new Map(content.lossMap.map((p) => [JSON.stringify([p.family, p.loss]), p]));
    for (const { family, loss } of panels.values()) {
      const div = document.createElement("div");
      div.className = "chart small";
      $("chart-map").append(div);
      drawnCharts.set(div, (look) => charts.lossMap(content, family, loss, look));
    }
  }

  async function loadPlotly() {
    if (typeof DecompressionStream === "undefined") {
      throw new Error("This browser is too old to unpack the charts (it has no DecompressionStream). The answer, the explorer's "
        + "figures and the tables are complete; open the page in a newer browser to see the charts.");
    }
    const packed = $("plotly");
    const stream = new Blob([bytesOf(packed.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    packed.textContent = "";
    document.head.append(script);
    script.remove();
  }

  async function drawAll() {
    try {
      await loadPlotly();
      chartPlaces();
      redraw();
      root.dataset.charts = "ready";
    } catch (error) {
      root.dataset.charts = "absent";
      $("no-charts").textContent = error.message;
      $("no-charts").hidden = false;
    }
  }

  // ---- theme and print

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  function themeNow() { return root.dataset.theme || (dark.matches ? "dark" : "light"); }
  function nameTheme() { $("theme").textContent = themeNow() === "dark" ? "Light theme" : "Dark theme"; }

  function themes() {
    $("theme").addEventListener("click", () => {
      root.dataset.theme = themeNow() === "dark" ? "light" : "dark";
      nameTheme();
      redraw();
    });
    dark.addEventListener("change", () => { nameTheme(); redraw(); });
    forPaper.addEventListener("change", redraw);
    nameTheme();
  }

  // ---- tables

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const falling = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const value = (row) => {
          const key = row.cells[column].dataset.value;
          return key === undefined || key === "" ? null : Number.isNaN(Number(key)) ? key : Number(key);
        };
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const [x, y] = [value(a), value(b)];
          if (x === null || y === null) return (x === null) - (y === null);
          const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
          return falling ? -order : order;
        });
        table.tBodies[0].append(...rows);
        table.classList.add("sorted");
      });
    });
  }

  function moreButtons() {
    for (const button of document.querySelectorAll("button[data-more]")) {
      const box = $(button.dataset.more);
      const closed = button.textContent;
      box.classList.add("cut");
      button.hidden = false;
      button.addEventListener("click", () => {
        const cut = box.classList.toggle("cut");
        button.textContent = cut ? closed : "Show fewer";
        button.setAttribute("aria-expanded", cut ? "false" : "true");
      });
    }
  }

  for (const table of document.querySelectorAll("table.sortable")) sortable(table);
  moreButtons();
  wire();
  settle();
  show();
  themes();
  root.dataset.explorer = "ready";
  drawAll();
})();
