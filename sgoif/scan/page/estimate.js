// How many wrong labels are left, learnt from the decisions; the same computation as sgoif/scan/review.py.
const E = data.estimate;  // the constants of review.py, and the probabilities of the examples that are not shown
const steps = Array.from({ length: E.grid }, (_, i) => -E.reach + 2 * E.reach * i / (E.grid - 1));
const points = steps.flatMap((a) => steps.map((b) => ({
  slope: E.slope * Math.exp(E.slope_sd * a), shift: E.shift_sd * b, prior: -(a * a + b * b) / 2 })));
const logit = (p) => { const q = Math.min(Math.max(p, E.least), E.most); return Math.log(q / (1 - q)); };
const softplus = (x) => x > 30 ? x : Math.log1p(Math.exp(x));

function posterior(judged) {  // judged: [probability, whether wrong], in that order
  const seen = judged.map(([p, wrong], i) => [logit(p), wrong ? -1 : 1, 0.5 ** ((judged.length - 1 - i) / E.half_life)]);
  const logs = points.map(({ slope, shift, prior }) =>
    seen.reduce((sum, [x, sign, recency]) => sum - recency * softplus(sign * (slope * x + shift)), prior));
  const top = Math.max(...logs), weights = logs.map((x) => Math.exp(x - top));
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((w) => w / total);
}
function expected(values, weights) {  // values: [probability, how many]
  const bins = values.map(([p, n]) => [logit(p), n]), size = values.reduce((sum, [, n]) => sum + n, 0);
  if (!size) return { count: 0, low: 0, high: 0 };
  let variance = 0;
  const means = points.map(({ slope, shift }, k) => {
    let sum = 0, spread = 0;
    for (const [x, n] of bins) { const q = 1 / (1 + Math.exp(-(slope * x + shift))); sum += n * q; spread += n * q * (1 - q); }
    variance += weights[k] * spread;
    return [sum, weights[k]];
  }).sort((a, b) => a[0] - b[0]);
  const quantile = (at) => { let share = 0; for (const [m, w] of means) { share += w; if (share >= at) return m; } return means.at(-1)[0]; };
  const middle = quantile(0.5), away = (end) => Math.hypot(middle - end, E.normal_quantile * Math.sqrt(variance));
  return { count: middle, low: Math.max(middle - away(quantile(0.05)), 0), high: Math.min(middle + away(quantile(0.95)), size) };
}
const roundCount = (x) => {
  const whole = Math.round(x), unit = whole < 100 ? 1 : 10 ** Math.max(String(whole).length - 2, 1);
  return (Math.round(whole / unit) * unit).toLocaleString("en");
};
function reviewProgress() {  // the sentence of the stop rule, or nothing before the first decision
  const wrongBy = new Map(data.items.filter((item) => item.suspicious).map((item) => [item.path, item.wrong]));
  const judged = [...decisions].filter(([path, d]) => d.how !== "bulk" && wrongBy.has(path)).map(([path, d]) => [wrongBy.get(path), d.decision !== "keep"]);
  if (!judged.length) return "";
  const weights = posterior(judged);
  const open = cards.filter((c) => c.item.suspicious && !decisions.has(c.item.path)).map((c) => [c.item.wrong, 1]);
  const left = expected([...open, ...E.rest], weights), here = expected(open, weights);
  const next = open.slice(0, E.last), soon = expected(next, weights).count;
  const last = judged.slice(-E.last), found = last.filter(([, wrong]) => wrong).length;
  const size = open.length + E.rest.reduce((sum, [, n]) => sum + n, 0);
  let text = `Of the last ${last.length} that you looked at, ${found} ${found === 1 ? "was" : "were"} wrong: expect about ${roundCount(left.count)} more `
    + `(${roundCount(left.low)} to ${roundCount(left.high)}) among the ${size.toLocaleString("en")} that are not decided`;
  text += E.rest.length ? `, ${roundCount(here.count)} of them on this page.` : ".";
  if (next.length) text += ` Of the next ${next.length} about ${roundCount(soon)} ${Math.round(soon) === 1 ? "is" : "are"}.`;
  if (judged.length >= E.last && soon < next.length / 20) text += " A good place to stop.";
  return text;
}
