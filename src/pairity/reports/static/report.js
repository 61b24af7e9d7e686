// Shows the panels of the ranker and of the query that were chosen, and draws the charts.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const figures = [];
  const sources = new Map();
  const state = { point: data.after, query: 0 };

  function show() {
    for (const panel of document.querySelectorAll("[data-point]")) {
      panel.hidden = Number(panel.dataset.point) !== state.point;
    }
    for (const panel of document.querySelectorAll("[data-query]")) {
      panel.hidden = Number(panel.dataset.query) !== state.query;
    }
    for (const [name, columns] of Object.entries(data.points[state.point])) {
      if (sources.has(name)) sources.get(name).data = columns;
    }
  }

  function choose(point) {
    if (!(point in data.points)) return;
    state.point = point;
    document.getElementById("choose").value = String(point);
    document.getElementById(`point-${point}`).checked = true;
    document.getElementById("status").textContent = `Showing ${data.names[point]}`;
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
      for (const drawn of figure.renderers) {
        if (drawn.name === "ring") drawn.glyph.line_color = ink;
      }
    }
  }

  // Paper is white whatever the screen is, and as wide as it is: charts are shrunk to it.
  function forPaper(root) {
    for (const text of root.querySelectorAll("text")) text.style.fill = "#000";
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot) forPaper(element.shadowRoot);
    }
  }

  function measure() {
    const width = document.getElementById("chart-frontier").clientWidth;
    if (width) document.documentElement.style.setProperty("--chart", String(width));
  }

  async function draw() {
    for (const [name, item] of Object.entries(data.charts)) {
      const views = await Bokeh.embed.embed_item(item, `chart-${name}`);
      const figure = (views.roots ?? views)[0].model;
      figures.push(figure);
      for (const model of figure.document._all_models.values()) {
        if (model.type === "ColumnDataSource" && model.name) sources.set(model.name, model);
      }
    }
    const frontier = sources.get("frontier");
    frontier.selected.change.connect(() => {
      const [first] = frontier.selected.indices;
      if (first === undefined) return;
      frontier.selected.indices = [];
      choose(frontier.data.at[first]);
    });
    paint();
    show();
    document.documentElement.classList.add("drawn");
  }

  document.addEventListener("change", (event) => {
    const target = event.target;
    if (target.name === "point" || target.id === "choose") choose(Number(target.value));
    if (target.id === "query") {
      state.query = Number(target.value);
      show();
    }
  });
  dark.addEventListener("change", paint);
  addEventListener("resize", measure);
  addEventListener("beforeprint", () => forPaper(document));
  addEventListener("afterprint", paint);
  measure();
  show();
  draw();
})();
