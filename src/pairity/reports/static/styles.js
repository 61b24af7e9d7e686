// Bokeh puts <style> elements into the shadow roots of its charts, which the page's policy stops.
// Here each becomes a constructed sheet of its root, which is no inline style, and follows it.
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
      root.adoptedStyleSheets = root.adoptedStyleSheets.filter((other) => other !== sheet);
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
