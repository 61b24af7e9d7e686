// Bokeh appends <style> elements to the shadow roots of its charts, which the content security
// policy blocks. This file is the only place that relies on it: each such element becomes a
// constructed style sheet of its root, which the policy admits, and the sheet follows the element.
"use strict";
(() => {
  const append = ShadowRoot.prototype.append;

  function adopt(root, style) {
    const sheet = new CSSStyleSheet();
    const follow = () => sheet.replaceSync(style.textContent);
    const observer = new MutationObserver(follow);
    observer.observe(style, { childList: true, characterData: true, subtree: true });
    style.remove = () => {
      observer.disconnect();
      root.adoptedStyleSheets = root.adoptedStyleSheets.filter((adopted) => adopted !== sheet);
    };
    follow();
    root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet];
  }

  ShadowRoot.prototype.append = function (...nodes) {
    for (const node of nodes) {
      if (node instanceof HTMLStyleElement) adopt(this, node);
      else append.call(this, node);
    }
  };
})();
