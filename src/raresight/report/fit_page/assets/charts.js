// The charts. Each is a function of (content, state, look) that returns plotly's data and layout. `look` has the
// colours of the theme and tells whether the page is narrow.
const charts = (() => {
  "use strict";
  const { percent, shortPercent, count, counted } = numbers;

  // Plotly reads a few tags in its text; a name must stay a name.
  function plain(text) {
    return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  function axis(look, title, more = {}) {
    return {
      title: { text: title, font: { size: 12, color: look.soft }, standoff: 8 },
      color: look.soft,
      gridcolor: look.grid,
      linecolor: look.rule,
      zeroline: false,
      automargin: true,
      tickfont: { size: 11 },
      ...more,
    };
  }

  function layout(look, more) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: look.font, size: 12, color: look.text },
      margin: { l: 56, r: 26, t: 12, b: 48 },
      hoverlabel: { bgcolor: look.card, bordercolor: look.rule, font: { color: look.text, size: 12 } },
      legend: { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11, color: look.soft } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: look.soft, activecolor: look.text },
      hovermode: "closest",
      dragmode: look.narrow ? false : "zoom",
      ...more,
    };
  }

  function tens(low, high) {
    const values = [];
    for (let k = Math.ceil(Math.log10(low) - 1e-9); k <= Math.floor(Math.log10(high) + 1e-9); k += 1) values.push(10 ** k);
    return values;
  }

  // Powers of ten as percentages; every second one where there is no room for all.
  function percentTicks(low, high, look) {
    let values = tens(low, high);
    const room = look.narrow ? 5 : 9;
    while (values.length > room) values = values.filter((_, i) => (values.length - 1 - i) % 2 === 0);
    return { tickmode: "array", tickvals: values, ticktext: values.map(shortPercent) };
  }

  // Corners of the staircase, at most a few in a pixel.
  function drawn(curve, leftEdge) {
    const x = [];
    const y = [];
    const index = [];
    let last = NaN;
    for (let i = 0; i < curve.fp.length; i += 1) {
      const fpr = Math.max(curve.fp[i] / curve.negatives, leftEdge);
      const recall = curve.tp[i] / curve.positives;
      const end = i === curve.fp.length - 1;
      if (i > 0 && !end && curve.tp[i] === curve.tp[i - 1] && curve.tp[i + 1] === curve.tp[i]) continue;
      const cell = Math.round(Math.log10(fpr) * 300) * 4000 + Math.round(recall * 2000);
      if (cell === last && !end) continue;
      last = cell;
      x.push(fpr);
      y.push(recall);
      index.push(i);
    }
    return { x, y, index };
  }

  function roc(content, state, look) {
    const { curve, band } = content;
    const left = 0.5 / curve.negatives;
    const line = drawn(curve, left);
    const bandX = band.map((p) => p.fpr);
    const point = explorer.rates(curve, state.index, state.prior);
    const traces = [];
    if (band.length > 0) {
      traces.push({
        x: bandX, y: band.map((p) => p.high), mode: "lines", line: { width: 0 }, hoverinfo: "skip",
        showlegend: false,
      }, {
        x: bandX, y: band.map((p) => p.low), mode: "lines", line: { width: 0 }, fill: "tonexty",
        fillcolor: look.blueBand, hoverinfo: "skip", name: `${percent(content.level, 2)} interval`,
      });
    }
    traces.push({
      x: line.x, y: line.y, mode: "lines", line: { color: look.blue, width: 2, shape: "hv" }, name: "held-out",
      hovertemplate: "False-positive rate %{customdata[0]}<br>Recall %{customdata[1]}<extra></extra>",
      customdata: line.index.map((i) => [percent(curve.fp[i] / curve.negatives), percent(curve.tp[i] / curve.positives)]),
    }, {
      x: line.x, y: line.x, mode: "lines", line: { color: look.soft, width: 1, dash: "dot" }, name: "chance",
      hoverinfo: "skip",
    }, {
      x: [Math.max(point.fpr, left)], y: [point.recall], mode: "markers", name: "operating point",
      marker: { color: look.orange, size: 12, line: { color: look.card, width: 2 } },
      hovertemplate: "operating point<extra></extra>",
    });
    return {
      data: traces,
      layout: layout(look, {
        xaxis: axis(look, "False-positive rate (log scale)", {
          type: "log", range: [Math.log10(left * 0.9), 0.02], ...percentTicks(left, 1, look),
        }),
        yaxis: axis(look, "Recall", { range: [-0.02, 1.03], tickformat: ".0%", dtick: 0.2 }),
      }),
      marker: (now) => ({ x: [[Math.max(now.fpr, left)]], y: [[now.recall]] }),
      markerTrace: traces.length - 1,
    };
  }

  function precisionRecall(content, state, look) {
    const { curve } = content;
    const line = drawn(curve, 0.5 / curve.negatives);
    const index = line.index.filter((i) => curve.tp[i] + curve.fp[i] > 0);
    const points = index.map((i) => explorer.rates(curve, i, state.prior));
    const point = explorer.rates(curve, state.index, state.prior);
    const at = (now) => (Number.isFinite(now.precision) ? { x: [[now.recall]], y: [[now.precision]] } : { x: [[]], y: [[]] });
    const first = at(point);
    return {
      data: [{
        x: points.map((p) => p.recall), y: points.map((p) => p.precision), mode: "lines", name: "held-out",
        line: { color: look.blue, width: 2 },
        hovertemplate: "recall %{x:.1%}<br>precision %{y:.1%}<extra></extra>",
      }, {
        x: [0, 1], y: [state.prior, state.prior], mode: "lines", name: "share of positives", hoverinfo: "skip",
        line: { color: look.soft, width: 1, dash: "dot" },
      }, {
        x: first.x[0], y: first.y[0], mode: "markers", name: "operating point",
        marker: { color: look.orange, size: 12, line: { color: look.card, width: 2 } },
        hovertemplate: "operating point<extra></extra>",
      }],
      layout: layout(look, {
        xaxis: axis(look, "Recall", { range: [-0.02, 1.03], tickformat: ".0%", dtick: 0.2 }),
        yaxis: axis(look, "Precision", { range: [-0.02, 1.03], tickformat: ".0%", dtick: 0.2 }),
      }),
      marker: at,
      markerTrace: 2,
    };
  }

  function reliability(content, state, look) {
    const groups = [
      // Large and open below, small and filled above: both are seen where they fall together.
      { name: "sigmoid of the score", rows: content.reliability.before, colour: look.orange, symbol: "diamond-open", size: 13, bar: 4, barColour: look.orangeBand },
      { name: "calibrated", rows: content.reliability.after, colour: look.blue, symbol: "circle", size: 7, bar: 1.4, barColour: look.blue },
    ];
    const bins = groups.flatMap((group) => group.rows);
    // A lower end may be next to nothing; it may run out of the picture, a point may not.
    const lowest = Math.min(0.1, ...bins.flatMap((b) => [b.predicted, b.observed, b.high]).filter((v) => v > 1e-12));
    const floor = 10 ** Math.floor(Math.log10(lowest) - 0.15);
    const data = [{
      x: [floor, 1], y: [floor, 1], mode: "lines", name: "perfect", hoverinfo: "skip",
      line: { color: look.soft, width: 1, dash: "dot" },
    }];
    for (const { name, rows, colour, symbol, size, bar, barColour } of groups) {
      const height = (b) => (b.observed > 0 ? b.observed : b.high);
      data.push({
        x: rows.map((b) => Math.max(b.predicted, floor)), y: rows.map(height), mode: "markers", name, cliponaxis: false,
        marker: {
          color: colour, size, symbol: rows.map((b) => (b.observed > 0 ? symbol : "triangle-down-open")),
          line: { color: colour, width: 2 },
        },
        error_y: {
          type: "data", symmetric: false, color: barColour, thickness: bar, width: 0,
          array: rows.map((b) => b.high - height(b)),
          arrayminus: rows.map((b) => height(b) - Math.max(b.low, floor)),
        },
        customdata: rows.map((b) => [percent(b.predicted), percent(b.observed), percent(b.low), percent(b.high), counted(b.count, "row")]),
        hovertemplate: "predicted %{customdata[0]}<br>observed %{customdata[1]} (%{customdata[2]} to %{customdata[3]})"
          + "<br>%{customdata[4]}<extra>" + name + "</extra>",
      });
    }
    const range = [Math.log10(floor) - 0.12, 0.12];
    return {
      data,
      layout: layout(look, {
        xaxis: axis(look, "Predicted probability (log scale)", { type: "log", range, ...percentTicks(floor, 1, look) }),
        yaxis: axis(look, "Observed share", { type: "log", range, ...percentTicks(floor, 1, look) }),
      }),
    };
  }

  function distribution(content, state, look) {
    const { edges, positives, negatives } = content.distribution;
    const middle = edges.slice(1).map((edge, k) => (edge + edges[k]) / 2);
    const share = (counts) => {
      const all = counts.reduce((a, b) => a + b, 0) || 1;
      return counts.map((c) => c / all);
    };
    const area = (counts, name, colour, fill) => ({
      x: middle, y: share(counts), name, mode: "lines", line: { color: colour, width: 1.5, shape: "hvh" },
      fill: "tozeroy", fillcolor: fill, customdata: counts.map(count),
      hovertemplate: "log-odds %{x:.2f}<br>%{y:.2%} of the class (%{customdata} rows)<extra>" + name + "</extra>",
    });
    return {
      data: [
        area(negatives, "negatives", look.blue, look.blueBand),
        area(positives, "positives", look.orange, look.orangeBand),
      ],
      layout: layout(look, {
        xaxis: axis(look, "Log-odds", { range: [edges[0], edges[edges.length - 1]] }),
        yaxis: axis(look, "Share of the class", { tickformat: ".0%", rangemode: "tozero" }),
        ...thresholdLine(content, state, look),
      }),
    };
  }

  // A threshold beyond all scores is drawn at the edge.
  function thresholdLine(content, state, look) {
    const { edges } = content.distribution;
    const high = edges[edges.length - 1];
    const at = Math.min(high, Math.max(edges[0], state.threshold));
    const right = at > (edges[0] + high) / 2;
    return {
      shapes: [{
        type: "line", x0: at, x1: at, y0: 0, y1: 1, yref: "paper", line: { color: look.text, width: 1.5, dash: "dash" },
      }],
      annotations: [{
        x: at, y: 0.98, yref: "paper", yanchor: "top", xanchor: right ? "right" : "left", xshift: right ? -4 : 4,
        text: "threshold", showarrow: false, font: { size: 11, color: look.text },
      }],
    };
  }

  function lossMap(content, family, loss, look) {
    const points = content.lossMap.filter((p) => p.family === family && p.loss === loss);
    const { x_name: xName, y_name: yName } = points[0];
    const all = content.lossMap.map((p) => p.partial_auc);
    const winner = content.winnerPlace;
    const data = [{
      x: points.map((p) => p.x), y: points.map((p) => p.y), mode: "markers", showlegend: false,
      marker: {
        size: 13, color: points.map((p) => p.partial_auc), cmin: Math.min(...all), cmax: Math.max(...all),
        colorscale: look.scale, line: { color: look.card, width: 1 },
        colorbar: { thickness: 10, len: 1, outlinewidth: 0, tickfont: { size: 10, color: look.soft }, nticks: 5 },
      },
      hovertemplate: plain(xName) + " %{x:.3f}, " + plain(yName) + " %{y:.3f}<br>partial AUC %{marker.color:.4f}<extra></extra>",
    }];
    if (winner && winner.family === family && winner.loss === loss) {
      data.push({
        x: [winner.x], y: [winner.y], mode: "markers", name: "chosen", hoverinfo: "skip",
        marker: { size: 22, symbol: "circle-open", color: look.orange, line: { width: 3, color: look.orange } },
        showlegend: false,
      });
    }
    return {
      data,
      layout: layout(look, {
        xaxis: axis(look, plain(xName)), yaxis: axis(look, plain(yName)), showlegend: false,
        title: { text: plain(`${content.families[family]}, ${loss}`), font: { size: 13 }, x: 0.02, y: 0.98, yanchor: "top" },
        margin: { l: 50, r: 10, t: 34, b: 44 },
      }),
    };
  }

  return { roc, precisionRecall, reliability, distribution, thresholdLine, lossMap };
})();
