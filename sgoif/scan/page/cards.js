// Cards: one for each example, with its picture, a typical picture of the suggested class, and the decision's buttons.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};
const say = (text) => { $("said").textContent = text; };
const number = (x) => Math.abs(x) >= 100 ? x.toFixed(0) : Number(x.toPrecision(3)).toString();
const percent = (p) => p > 0.995 ? "over 99%" : p < 0.005 ? "under 1%" : Math.round(100 * p) + "%";
const classNamed = (text) => {  // by either of its names
  const exact = data.classes.indexOf(text);
  return exact >= 0 ? exact : data.names.findIndex((name) => name.toLowerCase() === text.trim().toLowerCase());
};
let cards = [];  // in the order that is shown, hidden ones too

function picture(image, tiny, alt) {
  return image ? make("img", { src: image, alt, loading: "lazy", className: tiny ? "tiny" : "" })
    : make("span", { className: "nothing", textContent: "no picture" });
}
function typical(c, count) {
  return (data.typical[c] ?? []).slice(0, count).map((t) => picture(t.image, t.tiny, "a typical " + data.names[c]));
}
function claim(item) {
  const given = make("b", { className: "given", textContent: data.names[item.given], title: data.classes[item.given] });
  const better = make("b", { className: "better", textContent: data.names[item.other], title: data.classes[item.other] });
  if (section.name === "outliers") return make("p", { className: "claim" }, "given ", given, ", unlike the rest");
  const copy = copyOf(item);
  if (copy) better.replaceChildren(data.names[copy.given]);
  const looks = copy ? ", a copy is called " : item.flagged ? ", looks like " : ", perhaps ";
  return make("p", { className: "claim" }, "given ", given, looks, better);
}
function chance(item) {
  if (!item.judged) return make("div", { className: "chance" }, "not judged: training never saw it");
  const filled = make("span");
  filled.style.width = 100 * item.wrong + "%";
  return make("div", { className: "chance" }, make("span", {}, filled), make("span", { textContent: `wrong: ${percent(item.wrong)}` }));
}
function numbers(item) {
  const why = make("div", { className: "why" });
  why.setAttribute("aria-label", "classes that learning this label harms or helps");
  const top = Math.max(...item.why.map(([, v]) => Math.abs(v)), 1e-12);
  for (const [c, v] of item.why) {
    const bar = make("div", { className: v > 0 ? "stroke" : "stroke helps" });
    bar.style.width = 100 * Math.abs(v) / top + "%";
    const name = make("span", { textContent: data.names[c], title: data.classes[c] });
    why.append(name, make("span", {}, bar), make("span", { textContent: (v > 0 ? "+" : "−") + number(Math.abs(v)) }));
  }
  const interval = item.interval ? ` (${number(item.interval[0])} to ${number(item.interval[1])})` : "";
  const told = [
    `rank ${item.rank}, suspicion ${number(item.suspicion)}`,
    `the network gives ${data.names[item.other]} ${percent(item.probabilities[1])}, ${data.names[item.given]} ${percent(item.probabilities[0])}`,
    `influence ${number(item.score)}${interval}, confidence ${number(item.confidence)}, ${item.visits} visits`,
  ];
  return make("details", { className: "numbers" }, make("summary", { textContent: "Numbers" }),
    ...told.map((textContent) => make("p", { textContent })), why);
}
function card(item) {
  const found = { item };
  const open = make("button", { className: "open", type: "button" }, picture(item.image, item.tiny, ""));
  open.setAttribute("aria-label", "show large");
  open.addEventListener("click", () => enlarge(found));
  found.beside = make("figure");
  found.claim = make("div");
  found.choice = make("input", { value: data.names[item.other] });
  found.choice.setAttribute("list", "classes");
  found.choice.setAttribute("aria-label", "label to relabel as");
  const button = (name, text, hint) => {
    const b = make("button", { className: name, type: "button" }, text + " ", make("kbd", { textContent: hint }));
    b.addEventListener("click", () => decide(found, name));
    return b;
  };
  found.node = make("article", { tabIndex: 0 },
    make("div", { className: "pictures" }, open, found.beside), found.claim, chance(item),
    make("div", { className: "acts" }, button("keep", "Keep", "k"), button("remove", "Remove", "x"), make("span", { className: "break" }), button("relabel", "Relabel", "r"), found.choice),
    numbers(item), make("p", { className: "path", textContent: `#${item.rank} ${item.path}` }));
  tellBeside(found);
  found.node.setAttribute("aria-label", `${item.rank}: ${item.path}, given ${data.names[item.given]}`);
  found.choice.addEventListener("keydown", (e) => {
    if (e.key === "Enter") decide(found, "relabel");
    else if (e.key === "Escape") found.node.focus();
    else return;
    e.preventDefault();
    e.stopPropagation();
  });
  return found;
}
function tellBeside({ item, beside, claim: told }) {  // what a card shows depends on the section
  const copy = copyOf(item), name = data.names[copy ? copy.given : item.other];
  const pictures = copy ? [picture(copy.image, copy.tiny, "its copy")] : typical(item.other, 1);
  beside.replaceChildren(...pictures, make("figcaption", { textContent: copy ? `its copy, called ${name}` : `a typical ${name}` }));
  told.replaceChildren(claim(item));
}
function neighbour(from, by) {  // the next shown card, or null; from null: the first
  for (let n = from === null ? 0 : cards.indexOf(from) + by; n >= 0 && n < cards.length; n += by) if (!cards[n].node.hidden) return cards[n];
  return null;
}
function focusCard(found) { found.node.focus(); found.node.scrollIntoView({ block: "nearest" }); }
function current() {
  const at = document.activeElement?.closest?.("article");
  return at ? cards.find((c) => c.node === at) ?? null : null;
}
function columns() { return getComputedStyle($("cards")).gridTemplateColumns.split(" ").length; }
