// Shows the panels of the selected ranker and query, and draws the charts.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const figures = [];
  const sources = new Map();
  const selected = { candidate: data.after, query: 0 };

  function show() {
    for (const kind of ["candidate", "query"]) {
      for (const panel of document.querySelectorAll(`[data-${kind}]`)) {
        panel.hidden = Number(panel.dataset[kind]) !== selected[kind];
      }
    }
    for (const [name, columns] of Object.entries(data.candidates[selected.candidate])) {
      if (sources.has(name)) sources.get(name).data = columns;
    }
  }

  function select(candidate) {
    if (!(candidate in data.candidates)) return;
    selected.candidate = candidate;
    document.getElementById("candidate").value = String(candidate);
    document.getElementById(`candidate-${candidate}`).checked = true;
    document.getElementById("status").textContent = `Showing ${data.names[candidate]}`;
    show();
  }

  function paint() {
    const ink = dark.matches ? "#c9ced6" : "#3d444d";
    for (const figure of figures) {
      for (const axis of [...figure.below, ...figure.left]) {
        axis.axis_label_text_color = ink;
        axis.major_label_text_color = ink;
        axis.axis_line_color = ink;
        axis.major_tick_line_color = ink;
      }
      for (const renderer of figure.renderers) {
        if (renderer.name === "ring") renderer.glyph.line_color = ink;
      }
    }
  }

  // Paper is white in dark mode too, so the text of the charts is printed black.
  function blacken(root) {
    for (const text of root.querySelectorAll("text")) text.style.fill = "#000";
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot) blacken(element.shadowRoot);
    }
  }

  // The style sheet shrinks charts to the width of the paper by this variable.
  function measure() {
    const width = document.getElementById("chart-frontier").clientWidth;
    if (width) document.documentElement.style.setProperty("--chart", String(width));
  }

  async function draw() {
    for (const [name, item] of Object.entries(data.charts)) {
      const views = await Bokeh.embed.embed_item(item, `chart-${name}`);
      const figure = (views.roots ?? views)[0].model;
      figures.push(figure);
      for (const { data_source: source } of figure.renderers) {
        if (source?.name) sources.set(source.name, source);
      }
    }
    const frontier = sources.get("frontier");
    frontier.selected.change.connect(() => {
      const [first] = frontier.selected.indices;
      if (first === undefined) return;
      frontier.selected.indices = [];
      select(frontier.data.candidate[first]);
    });
    paint();
    show();
    document.documentElement.classList.add("drawn");
  }

  document.addEventListener("change", (event) => {
    const target = event.target;
    if (target.name === "candidate" || target.id === "candidate") select(Number(target.value));
    if (target.id === "query") {
      selected.query = Number(target.value);
      show();
    }
  });
  dark.addEventListener("change", paint);
  addEventListener("resize", measure);
  addEventListener("beforeprint", () => blacken(document));
  addEventListener("afterprint", paint);
  measure();
  show();
  draw();
})();
