// The check in the browser: wires the button of #verify on the page of a room to a web worker that verifies the room on this machine, and shows
// what it found. What the page says of the room stands in the data attributes of #verify, its words in #verify-words. Nothing is loaded before
// the button is pressed.
'use strict';

(() => {
  const box = document.getElementById('verify');
  const button = document.getElementById('verify-start');
  const bar = document.getElementById('verify-progress');
  const result = document.getElementById('verify-result');
  const source = document.getElementById('verify-words');
  if (!box || !button || !bar || !result || !source || !window.Worker || !window.WebAssembly) return;
  const words = JSON.parse(source.textContent);
  const most = 20; // lines of one list
  const number = new Intl.NumberFormat(document.documentElement.lang);
  let worker = null, began = 0, shown = 0;

  // word is a text with its places {0}, {1}, … filled.
  const word = (key, ...values) => (words[key] || key).replace(/\{(\d)\}/g, (_, i) => values[i]);
  // plain shows characters that would be obeyed in place of being read.
  const plain = text => String(text).replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, c => '\\u{' + c.codePointAt(0).toString(16) + '}');

  function make(name, text, className) {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    return e;
  }

  function list(items, className) {
    const ul = make('ul', undefined, className);
    for (const item of items) ul.append(make('li', plain(item)));
    return ul;
  }

  // say puts a heading line into the result, and forgets what stood there.
  function say(kind, strong, text) {
    const p = make('p', undefined, 'check ' + kind);
    p.append(make('strong', strong), ' ' + (text || ''));
    result.replaceChildren(p);
  }

  // alarm says above the whole page what must not be overlooked, or with nothing takes it back.
  function alarm(strong, text) {
    const old = document.getElementById('verify-alarm');
    if (old) old.remove();
    if (!strong) return;
    const section = make('section', undefined, 'alarm');
    section.id = 'verify-alarm';
    section.setAttribute('role', 'alert');
    const link = make('a', word('lied-link'));
    link.href = '#verify';
    const p = make('p');
    p.append(link);
    section.append(make('h2', strong), make('p', text), p);
    document.getElementById('alarms').before(section);
  }

  function end() {
    if (worker) worker.terminate();
    worker = null;
    bar.hidden = true;
    button.textContent = word('again');
    result.removeAttribute('aria-busy');
  }

  function progress({done, total, records}) {
    if (total > 0) { bar.max = total; bar.value = Math.min(done, total); } else { bar.removeAttribute('value'); }
    const now = performance.now();
    if (now - shown < 500) return;
    shown = now;
    result.textContent = word('running', number.format(records));
  }

  function fact(dl, name, value) {
    const div = make('div');
    const dd = make('dd');
    dd.append(value);
    div.append(make('dt', word(name)), dd);
    dl.append(div);
  }

  function show(r) {
    const warned = box.dataset.verdict;
    const bad = ['broken', 'violations', 'archive-mismatch'].includes(r.verdict);
    const lied = (r.untrue || []).length > 0;
    if (lied) say('bad', word('lied'), word('lied-text'));
    else if (bad) say('warn', word('bad'), word('bad-text'));
    else if (warned && warned !== 'verified') say('warn', word('warned'), word('warned-text', word('verdict-' + warned)));
    else say('good', word('good'), r.withheld ? word('good-withheld', number.format(r.withheld)) : word('good-text'));
    if (lied) alarm(word('lied'), word('lied-alarm'));
    box.dataset.result = lied ? 'lied' : bad ? 'bad' : 'good';
    if (lied) result.append(list(r.untrue, 'untrue'));

    const found = [];
    if (r.broken) found.push(word('broken-at', number.format(r.broken.seq), r.broken.reason));
    found.push(...(r.problems || []));
    for (const f of r.findings || []) found.push(word('finding', number.format(f.seq), f.rule ? f.rule + ': ' + f.reason : f.reason));
    if (found.length) result.append(make('p', word('found')), list(found, 'found'));

    const dl = make('dl', undefined, 'facts');
    const code = text => make('code', text, 'hash');
    fact(dl, 'fact-verdict', word('verdict-' + r.verdict));
    fact(dl, 'fact-records', word('records', number.format(r.records), number.format(r.authors)));
    fact(dl, 'fact-chain', r.broken ? word('chain-to', number.format(r.records)) : word(r.withheld ? 'chain-withheld' : 'chain-good', number.format(r.withheld)));
    fact(dl, 'fact-rules', word('rules', number.format(r.counts.allowed || 0), number.format(r.counts.violation || 0), number.format(r.counts.unverifiable || 0)));
    fact(dl, 'fact-manifest', word('manifest-' + r.manifest));
    if (r.signed && !r.broken) { // else there is nothing to compare them with
      const agree = r.signed.filter(s => s.agrees).length;
      fact(dl, 'fact-signed', word(r.more_signed ? 'signed-first' : 'signed', number.format(agree), number.format(r.signed.length)));
    }
    if (r.archive_root) fact(dl, 'fact-root', code(r.archive_root));
    if (r.last_hash) fact(dl, 'fact-last', code(r.last_hash));
    fact(dl, 'fact-time', word('seconds', number.format(Math.round((performance.now() - began) / 100) / 10)));
    result.append(dl);
    const apart = (r.broken ? [] : r.signed || []).filter(s => !s.agrees && !s.forged);
    if (apart.length) result.append(make('p', word('signed-apart')), list(apart.slice(0, most).map(s => s.signer + ': ' + s.reason), 'found'));
    result.append(make('p', word('trust'), 'meta'));
  }

  function start() {
    const d = box.dataset;
    const absolute = path => new URL(path, location.href).href;
    const about = new URLSearchParams({origin: d.origin, room_id: d.room});
    began = performance.now();
    shown = 0;
    delete d.result;
    alarm();
    result.setAttribute('aria-busy', 'true'); // numbers that run are not read aloud; what was found is
    button.textContent = word('stop');
    bar.removeAttribute('value');
    bar.hidden = false;
    result.textContent = word('loading');
    worker = new Worker(d.worker);
    worker.onmessage = ({data}) => {
      if (data.progress) { progress(data.progress); return; }
      if (data.report) show(data.report);
      else { say('warn', word('failed'), plain(data.error)); d.result = 'failed'; }
      end();
    };
    worker.onerror = e => {
      e.preventDefault();
      say('warn', word('failed'), plain(e.message || word('no-worker')));
      d.result = 'failed';
      end();
    };
    worker.postMessage({
      room: absolute(d.api), id: d.room,
      said: {records: Number(d.seq), last_hash: d.hash, archive_root: d.root || '', verdict: d.verdict},
      signed: ['statements', 'attestations'].map(kind => absolute('/v1/witness/' + kind + '?' + about)),
    });
  }

  button.addEventListener('click', () => {
    if (!worker) { start(); return; }
    end();
    say('warn', word('stopped'));
  });
  button.hidden = false;
})();
