// What a page must be for everybody, as far as a program can tell: structure, names, contrast, size of targets, width. Evaluates to a list of
// faults. Our own reading of WCAG 2.2 level AA.
(() => {
  const faults = [];
  const say = (e, text) => faults.push(text + (e ? ' — ' + place(e) : ''));
  function place(e) {
    const parts = [];
    for (let x = e; x && x !== document.documentElement && parts.length < 4; x = x.parentElement) {
      parts.unshift(x.localName + (x.id ? '#' + x.id : '') + (x.classList.length ? '.' + [...x.classList].join('.') : ''));
    }
    return parts.join(' > ') + ' "' + (e.textContent || '').trim().replace(/\s+/g, ' ').slice(0, 50) + '"';
  }
  const all = selector => [...document.querySelectorAll(selector)];
  const shown = e => e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true});
  const forReaders = e => { // text for screen readers alone is clipped away
    const r = e.getBoundingClientRect(), s = getComputedStyle(e);
    return r.width <= 1 || r.height <= 1 || s.clipPath === 'inset(50%)' || s.clip === 'rect(0px, 0px, 0px, 0px)';
  };

  // the document
  if (!document.documentElement.lang) say(null, 'html has no lang');
  if (!document.title.trim()) say(null, 'the page has no title');
  const viewport = document.querySelector('meta[name=viewport]');
  if (!viewport || /user-scalable\s*=\s*no|maximum-scale/.test(viewport.content)) say(null, 'the viewport cannot be zoomed, or there is none');
  for (const e of all('[style]')) say(e, 'a style attribute');
  for (const e of all('script:not([src]):not([type="application/json"]), style')) say(e, 'an inline script or style');
  for (const e of all('*')) for (const a of e.attributes) if (/^on/i.test(a.name)) say(e, 'an event handler attribute ' + a.name);
  for (const e of all('iframe, object, embed, base, form[action^="http"], [autofocus], marquee, blink')) say(e, 'an element that no page of ours has');
  for (const e of all('[href], [src], [action]')) {
    for (const name of ['href', 'src', 'action']) {
      const v = e.getAttribute(name);
      if (v !== null && /^\s*(javascript|data|vbscript|file|blob):/i.test(v)) say(e, name + ' is ' + v.slice(0, 40));
    }
  }
  for (const e of all('a[href^="http"]')) {
    if (new URL(e.href).origin !== location.origin && !/\bnofollow\b|\bugc\b/.test(e.rel) && e.closest('.said-text')) say(e, 'a foreign link without rel nofollow');
  }

  // ids and references
  const ids = new Set();
  for (const e of all('[id]')) { if (ids.has(e.id)) say(e, 'id twice: ' + e.id); ids.add(e.id); }
  for (const name of ['aria-labelledby', 'aria-describedby', 'aria-controls', 'aria-owns', 'for']) {
    for (const e of all('[' + name + ']')) for (const id of e.getAttribute(name).split(/\s+/)) if (!ids.has(id)) say(e, name + ' names ' + id + ', which is not there');
  }
  for (const e of all('a[href^="#"]')) if (e.getAttribute('href').length > 1 && !ids.has(decodeURIComponent(e.getAttribute('href').slice(1)))) say(e, 'a link to ' + e.getAttribute('href') + ', which is not there');
  for (const e of all('[tabindex]')) if (e.tabIndex > 0) say(e, 'a tabindex above 0');

  // landmarks and headings
  const outer = name => all(name).filter(e => !e.closest('article, aside, main, nav, section') || e.localName === 'main');
  if (all('main').length !== 1) say(null, all('main').length + ' main landmarks');
  if (outer('header').length !== 1) say(null, outer('header').length + ' banners');
  if (outer('footer').length !== 1) say(null, outer('footer').length + ' footers of the page');
  const named = e => name(e);
  const navs = all('nav');
  if (navs.length === 0) say(null, 'no navigation');
  for (const kind of ['nav', 'aside', 'section[aria-label], section[aria-labelledby]']) {
    const seen = new Set();
    const list = all(kind);
    for (const e of list) {
      const n = named(e);
      if (kind !== 'nav' && kind !== 'aside' ? !n : list.length > 1 && !n) say(e, 'a landmark without a name');
      if (n && seen.has(e.localName + n)) say(e, 'two landmarks of one name: ' + n);
      seen.add(e.localName + n);
    }
  }
  for (const e of all('body > *')) {
    if (!e.matches('header, main, footer, nav, aside, script, template, dialog, [role=status], a.skip') && shown(e) && e.textContent.trim()) say(e, 'text outside of the landmarks');
  }
  const headings = all('h1, h2, h3, h4, h5, h6').filter(shown);
  if (headings.filter(e => e.localName === 'h1').length !== 1) say(null, headings.filter(e => e.localName === 'h1').length + ' headings of level 1');
  let level = 0;
  for (const e of headings) {
    const n = Number(e.localName[1]);
    if (n > level + 1) say(e, 'a heading of level ' + n + ' follows one of level ' + level);
    if (!e.textContent.trim()) say(e, 'an empty heading');
    level = n;
  }
  const skip = document.querySelector('body a[href]');
  if (!skip || !/^#/.test(skip.getAttribute('href'))) say(skip, 'the first link does not skip to the content');

  // names
  function name(e) {
    const by = e.getAttribute('aria-labelledby');
    if (by) return by.split(/\s+/).map(id => (document.getElementById(id) || {textContent: ''}).textContent).join(' ').trim();
    const label = e.getAttribute('aria-label');
    if (label && label.trim()) return label.trim();
    if (e.matches('nav, aside, section, main, header, footer')) return '';
    if (e.labels && e.labels.length) return [...e.labels].map(l => l.textContent).join(' ').trim();
    if (e.localName === 'input') return (e.type === 'submit' || e.type === 'button' ? e.value : '') || e.title || '';
    const text = [...e.childNodes].map(function text(n) {
      if (n.nodeType === 3) return n.data;
      if (n.nodeType !== 1 || n.getAttribute('aria-hidden') === 'true' || n.hidden) return '';
      if (n.localName === 'img') return n.alt;
      return n.getAttribute('aria-label') || [...n.childNodes].map(text).join(' ');
    }).join(' ');
    return text.trim() || (e.title || '').trim();
  }
  for (const e of all('a[href], button, summary, input:not([type=hidden]), select, textarea, progress, meter, [role=button], [role=img], [role=progressbar]')) {
    if (!e.closest('[hidden]') && !name(e)) say(e, 'no name');
  }
  for (const e of all('img')) if (!e.hasAttribute('alt')) say(e, 'an image without alt');
  for (const e of all('svg')) if (e.getAttribute('aria-hidden') !== 'true' && !e.closest('[aria-hidden=true]') && !(e.getAttribute('role') === 'img' && (name(e) || e.querySelector('title')))) say(e, 'a drawing without a name that is not hidden');
  for (const e of all('[aria-hidden=true]')) if (e.matches('a[href], button, input, select, textarea, summary') || e.querySelector('a[href], button, input, select, textarea, summary')) say(e, 'hidden from readers, but can be focused');
  const roles = new Set('alert article banner button cell columnheader complementary contentinfo definition dialog document feed figure form grid group heading img link list listitem log main math menu meter navigation none note presentation progressbar region row rowgroup rowheader search separator status switch table term time timer tooltip'.split(' '));
  for (const e of all('[role]')) if (!roles.has(e.getAttribute('role'))) say(e, 'an unknown role');
  for (const e of all('[aria-label]')) if (e.matches('div, span, p, i, b, code, li') && !e.hasAttribute('role')) say(e, 'aria-label on an element without a role');
  for (const e of all('table')) if (!e.querySelector('th')) say(e, 'a table without headers');
  for (const e of all('ul, ol')) for (const c of e.children) if (!c.matches('li, script, template')) say(c, 'in a list, but no item');
  for (const e of all('li')) if (!e.parentElement.matches('ul, ol, menu')) say(e, 'an item outside of a list');
  for (const e of all('dl')) for (const c of e.children) if (!c.matches('dt, dd, div, script, template') || c.localName === 'div' && [...c.children].some(x => !x.matches('dt, dd'))) say(c, 'in a list of terms, but none');
  for (const e of all('time')) if (!e.hasAttribute('datetime')) say(e, 'a time without datetime');
  for (const e of all('a a, a button, button a, button button, label label, a input, a summary, summary a, summary button')) say(e, 'a control inside a control');

  // colours
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const known = new Map();
  function rgba(color) {
    if (!known.has(color)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = '#000';
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
      const d = canvas.getImageData(0, 0, 1, 1).data;
      known.set(color, [d[0], d[1], d[2], d[3] / 255]);
    }
    return known.get(color);
  }
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = c => { const l = c.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2]; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)]; return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  function ground(e) {
    const layers = [];
    for (let x = e; x; x = x.parentElement) {
      const s = getComputedStyle(x);
      if (s.backgroundImage !== 'none') return null;
      const c = rgba(s.backgroundColor);
      if (c[3] > 0) { layers.push(c); if (c[3] === 1) break; }
    }
    return layers.reduceRight((below, top) => over(top, below), dark ? [18, 18, 18, 1] : [255, 255, 255, 1]);
  }
  const opacity = e => { let o = 1; for (let x = e; x; x = x.parentElement) o *= Number(getComputedStyle(x).opacity); return o; };
  function contrast(e, color, what) {
    const s = getComputedStyle(e), back = ground(e);
    if (!back) { say(e, 'text on a picture'); return; }
    const front = rgba(color).slice();
    front[3] *= opacity(e);
    const size = parseFloat(s.fontSize), big = size >= 24 || size >= 18.66 && Number(s.fontWeight) >= 700;
    const r = ratio(over(front, back), back);
    if (r < (big ? 3 : 4.5) - 0.005) say(e, what + ' has a contrast of ' + r.toFixed(2));
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const judged = new Set();
  for (let n = walker.nextNode(); n; n = walker.nextNode()) {
    const e = n.parentElement;
    if (!n.data.trim() || judged.has(e) || !shown(e) || e.closest('script, template, :disabled, title, desc') || forReaders(e)) continue;
    judged.add(e);
    const s = getComputedStyle(e);
    contrast(e, e instanceof SVGElement ? s.fill : s.color, 'text');
    if (parseFloat(s.fontSize) < 11) say(e, 'text of ' + s.fontSize);
  }
  for (const e of all('input:not([type=hidden]), select, textarea')) {
    if (!shown(e)) continue;
    if (e.placeholder) contrast(e, getComputedStyle(e, '::placeholder').color, 'placeholder');
    const s = getComputedStyle(e), back = ground(e.parentElement);
    const edge = s.borderBottomStyle !== 'none' && parseFloat(s.borderBottomWidth) > 0 ? over(rgba(s.borderBottomColor), back) : ground(e);
    if (ratio(edge, back) < 2.995) say(e, 'the edge of a field has a contrast of ' + ratio(edge, back).toFixed(2));
  }

  // targets: 24 by 24, or in a sentence, or far enough from others (2.5.8)
  const targets = all('a[href], button, summary, input:not([type=hidden]), select, textarea').filter(e => shown(e) && !forReaders(e)).map(e => ({e, r: e.getBoundingClientRect()}));
  const inText = e => getComputedStyle(e).display === 'inline' && [...e.parentElement.childNodes].some(n => n !== e && n.nodeType === 3 && n.data.trim().length > 1 || n !== e && n.nodeType === 1 && n.localName !== 'script' && getComputedStyle(n).display === 'inline' && n.textContent.trim() && !n.matches('a, button'));
  for (const {e, r} of targets) {
    if (r.width >= 24 && r.height >= 24 || inText(e)) continue;
    const x = r.left + r.width / 2, y = r.top + r.height / 2;
    const near = targets.find(t => {
      if (t.e === e || e.contains(t.e) || t.e.contains(e)) return false;
      const dx = Math.max(t.r.left - x, 0, x - t.r.right), dy = Math.max(t.r.top - y, 0, y - t.r.bottom);
      const other = Math.hypot(t.r.left + t.r.width / 2 - x, t.r.top + t.r.height / 2 - y);
      return Math.hypot(dx, dy) < 12 || t.r.width < 24 && t.r.height < 24 && other < 24;
    });
    if (near) say(e, `a target of ${r.width.toFixed(0)}×${r.height.toFixed(0)} near another`);
  }

  // width
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > wide) {
    say(null, 'the page is ' + document.documentElement.scrollWidth + ' wide in a window of ' + wide);
    const culprits = all('body *').filter(e => { const r = e.getBoundingClientRect(); return r.right > wide + 1 && r.width > 0 && !clipped(e.parentElement); });
    for (const e of culprits.slice(0, 5)) say(e, 'reaches to ' + Math.round(e.getBoundingClientRect().right));
  }
  function clipped(e) { for (let x = e; x && x !== document.body; x = x.parentElement) if (getComputedStyle(x).overflowX !== 'visible') return true; return false; }
  for (const e of all('*')) { // what scrolls must be reachable by keyboard
    const s = getComputedStyle(e);
    if (shown(e) && (s.overflowX === 'auto' || s.overflowX === 'scroll') && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && e.tabIndex < 0 && !e.querySelector('a[href], button, input') && !e.matches('html, body, input, textarea')) say(e, 'scrolls sideways, but cannot be focused');
  }
  return faults;
})()
