// The arithmetic of operating points: pure functions of the curve, independent of the page.
//
// A curve is {thresholds, tp, fp, positives, negatives, exactToFpr}: point i alerts on every score at or above
// thresholds[i], which catches tp[i] positives and fp[i] negatives. Point 0 is the threshold infinity.
const explorer = (() => {
  "use strict";

  // The next larger double, which is how "just above this score" is written.
  function nextUp(x) {
    if (Number.isNaN(x) || x === Infinity) return x;
    if (x === 0) return Number.MIN_VALUE;
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, x);
    view.setBigInt64(0, view.getBigInt64(0) + (x > 0 ? 1n : -1n));
    return view.getFloat64(0);
  }

  // The last point that passes a test which, once failed, stays failed. Point 0 is taken to pass.
  function lastThat(length, passes) {
    let low = 0;
    let high = length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (passes(middle)) low = middle;
      else high = middle;
    }
    return low;
  }

  // The lowest threshold whose false-positive rate is at most the budget.
  function withinBudget(curve, budget) {
    return lastThat(curve.fp.length, (i) => curve.fp[i] / curve.negatives <= budget);
  }

  // The highest threshold with the recall of a point: further down are false alerts alone.
  function withoutIdleAlerts(curve, i) {
    let best = i;
    while (curve.tp[i] > 0 && best > 0 && curve.tp[best - 1] === curve.tp[i]) best -= 1;
    return best;
  }

  function rates(curve, i, prior) {
    const recall = curve.tp[i] / curve.positives;
    const fpr = curve.fp[i] / curve.negatives;
    const caught = prior * recall;
    const falseAlerts = (1 - prior) * fpr;
    const alertShare = caught + falseAlerts;
    return { recall, fpr, alertShare, precision: alertShare > 0 ? caught / alertShare : NaN };
  }

  // The lowest threshold whose expected alerts per day are at most the capacity. The tolerance allows for the
  // rounding of the shares.
  function withinCapacity(curve, prior, volume, capacity) {
    const most = capacity * (1 + 1e-12);
    return lastThat(curve.fp.length, (i) => rates(curve, i, prior).alertShare * volume <= most);
  }

  // Expected cost of one case.
  function costOf(curve, i, prior, missCost, falseAlertCost) {
    const { recall, fpr } = rates(curve, i, prior);
    return prior * (1 - recall) * missCost + (1 - prior) * fpr * falseAlertCost;
  }

  // The point of least expected cost; among equal ones, the point with the fewest alerts.
  function cheapest(curve, prior, missCost, falseAlertCost) {
    let best = 0;
    let least = Infinity;
    for (let i = 0; i < curve.fp.length; i += 1) {
      const cost = costOf(curve, i, prior, missCost, falseAlertCost);
      if (cost < least) {
        least = cost;
        best = i;
      }
    }
    return best;
  }

  // Where the next score is known, just above it: the lowest threshold with these alerts. Where the curve is
  // thinned, the point's own score, which has exactly these alerts, too.
  function thresholdAt(curve, i) {
    if (i === curve.fp.length - 1) return -Infinity;
    const nextIsKnown = curve.exactToFpr >= 1 || curve.fp[i + 1] / curve.negatives <= curve.exactToFpr;
    return nextIsKnown ? nextUp(curve.thresholds[i + 1]) : curve.thresholds[i];
  }

  function isExact(curve, i) {
    return curve.exactToFpr >= 1 || curve.fp[i] / curve.negatives < curve.exactToFpr;
  }

  function probability(logOdds) {
    return logOdds >= 0 ? 1 / (1 + Math.exp(-logOdds)) : Math.exp(logOdds) / (1 + Math.exp(logOdds));
  }

  // The band's interval at a rate, on the straight line (over log rates) between its neighbours.
  function bandAt(band, fpr) {
    if (band.length === 0) return null;
    const at = Math.log(Math.max(fpr, band[0].fpr));
    for (let k = 1; k < band.length; k += 1) {
      const left = Math.log(band[k - 1].fpr);
      const right = Math.log(band[k].fpr);
      if (at <= right) {
        const share = right > left ? (at - left) / (right - left) : 0;
        const between = (a, b) => a + share * (b - a);
        return { low: between(band[k - 1].low, band[k].low), high: between(band[k - 1].high, band[k].high) };
      }
    }
    const end = band[band.length - 1];
    return { low: end.low, high: end.high };
  }

  // A share as typed: "0.1 %", "0.1%" and "0.001" are the same. NaN where it cannot be read.
  function readShare(text) {
    const found = /^\s*([0-9]+[.,]?[0-9]*|[.,][0-9]+)(?:e([+-]?[0-9]+))?\s*(%?)\s*$/i.exec(text);
    if (!found) return NaN;
    // The point is moved in the text: 0.7 / 100 is not the double nearest to 0.007, and budgets are exact.
    const exponent = Number(found[2] || 0) - (found[3] ? 2 : 0);
    return Number(`${found[1].replace(",", ".")}e${exponent}`);
  }

  // A number as typed, with a point or a comma before its fraction and either, or blanks, between its thousands.
  // A single one before three digits is of thousands, as the page itself writes them. NaN where it cannot be read.
  function readNumber(text) {
    const plain = text.trim().replace(/[\s\u00a0\u202f']/g, "");
    if (/^[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?$/.test(plain)) return Number(plain.replace(/,/g, ""));
    if (/^[0-9]{1,3}(\.[0-9]{3}){2,}(,[0-9]*)?$/.test(plain)
      || /^[0-9]{1,3}\.[0-9]{3},[0-9]*$/.test(plain)) return Number(plain.replace(/\./g, "").replace(",", "."));
    if (/^([0-9]+[.,]?[0-9]*|[.,][0-9]+)(e[+-]?[0-9]+)?$/i.test(plain)) return Number(plain.replace(",", "."));
    return NaN;
  }

  // Wilson's interval of a share, of `hits` among `tries`; z is the normal quantile of its level.
  function shareInterval(hits, tries, z) {
    if (tries === 0) return null;
    const share = hits / tries;
    const scale = 1 + (z * z) / tries;
    const middle = (share + (z * z) / (2 * tries)) / scale;
    const half = (z / scale) * Math.sqrt((share * (1 - share)) / tries + (z * z) / (4 * tries * tries));
    return { low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
  }

  // The deviation within which a standard normal number lies with a probability.
  function deviation(level) {
    let low = 0;
    let high = 40;
    for (let k = 0; k < 60; k += 1) {
      const middle = (low + high) / 2;
      if (within(middle) < level) low = middle; else high = middle;
    }
    return low;
  }

  // P(|N| < z) by Simpson's rule.
  function within(z) {
    const steps = 400;
    const width = z / steps;
    let sum = 0;
    for (let k = 0; k <= steps; k += 1) {
      const x = k * width;
      sum += (k === 0 || k === steps ? 1 : k % 2 ? 4 : 2) * Math.exp((-x * x) / 2);
    }
    return Math.min(1, 2 * ((sum * width) / 3) / Math.sqrt(2 * Math.PI));
  }

  return {
    nextUp, withinBudget, withoutIdleAlerts, withinCapacity, rates, costOf, cheapest, thresholdAt, isExact, probability, bandAt,
    readShare, readNumber, shareInterval, deviation,
  };
})();
