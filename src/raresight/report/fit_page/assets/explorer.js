// The arithmetic of operating points: pure functions of the curve, without a word about the page.
//
// A curve is {thresholds, tp, fp, positives, negatives, exactToFpr}: point i alarms on every score at or above
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

  function rates(curve, i, prior) {
    const recall = curve.tp[i] / curve.positives;
    const fpr = curve.fp[i] / curve.negatives;
    const caught = prior * recall;
    const falseAlarms = (1 - prior) * fpr;
    const alertShare = caught + falseAlarms;
    return { recall, fpr, alertShare, precision: alertShare > 0 ? caught / alertShare : NaN };
  }

  // The lowest threshold whose expected alerts in a day are at most the capacity; one that exceeds it by the
  // rounding of the shares alone is at the capacity.
  function withinCapacity(curve, prior, volume, capacity) {
    const most = capacity * (1 + 1e-12);
    return lastThat(curve.fp.length, (i) => rates(curve, i, prior).alertShare * volume <= most);
  }

  // Expected cost of one case.
  function costOf(curve, i, prior, missCost, falseAlarmCost) {
    const { recall, fpr } = rates(curve, i, prior);
    return prior * (1 - recall) * missCost + (1 - prior) * fpr * falseAlarmCost;
  }

  // The point of least expected cost; among equals the one with the fewest alerts.
  function cheapest(curve, prior, missCost, falseAlarmCost) {
    let best = 0;
    let least = Infinity;
    for (let i = 0; i < curve.fp.length; i += 1) {
      const cost = costOf(curve, i, prior, missCost, falseAlarmCost);
      if (cost < least) {
        least = cost;
        best = i;
      }
    }
    return best;
  }

  // Where the next score is known, just above it: the lowest threshold with these alarms. Where the curve is
  // thinned, the point's own score, which has exactly these alarms too.
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

  return {
    nextUp, withinBudget, withinCapacity, rates, costOf, cheapest, thresholdAt, isExact, probability, bandAt,
    readShare,
  };
})();
