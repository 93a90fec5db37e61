// The whole script: live pages, theme, times, palette, copy, keys. Every page works without it.
const $ = (query, within = document) => within.querySelector(query);
const $$ = (query, within = document) => [...within.querySelectorAll(query)];
const root = document.documentElement;
const say = text => { $('#say').textContent = text; };
const cookie = (name, value) => { document.cookie = `${name}=${value}; path=/ui; max-age=31536000; samesite=strict`; };
const kept = name => document.cookie.split('; ').find(pair => pair.startsWith(name + '='))?.split('=')[1];

function theme(button) {
  const next = button.value;
  if (next === 'auto') delete root.dataset.theme; else root.dataset.theme = next;
  cookie('shoal-theme', next);
  button.value = { auto: 'light', light: 'dark', dark: 'auto' }[next];
  button.setAttribute('aria-label', `Theme: ${next}; change to ${button.value}`);
  say('Theme: ' + next);
}

function times() {
  const clock = root.dataset.times !== 'abs';
  if (clock) root.dataset.times = 'abs'; else delete root.dataset.times;
  cookie('shoal-times', clock ? 'abs' : 'rel');
  say(clock ? 'Clock times' : 'Times since');
}

async function copy(button) { // Plain HTTP has no navigator.clipboard, and a browser can refuse the use of it.
  const text = button.dataset.copy;
  let copied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  if (!copied) {
    const field = Object.assign(document.createElement('textarea'), { value: text });
    button.append(field);
    field.select();
    copied = document.execCommand('copy');
    field.remove();
    button.focus();
  }
  if (!copied) return say('The browser copied nothing');
  button.dataset.copied = '';
  setTimeout(() => delete button.dataset.copied, 1500);
  say('Copied ' + text);
}

// ---- palette: the places of the page first, then what the controller finds
const hits = () => $$('#palette a').filter(link => !link.parentNode.hidden);
function choose(list, at) {
  const chosen = list[(at + list.length) % list.length];
  $$('#palette a').forEach(link => link.setAttribute('aria-selected', link === chosen));
  if (!chosen) return;
  chosen.scrollIntoView({ block: 'nearest' });
  $('#palette input').setAttribute('aria-activedescendant', chosen.id);
}
function palette() {
  $('#palette').showModal();
  const input = $('#palette input');
  input.value = '';
  input.dispatchEvent(new Event('input'));
  input.focus();
}
let asked = 0, asking;
function find(text) {
  clearTimeout(asking);
  $$('#palette li[data-found]').forEach(item => item.remove());
  if (text.trim().length < 2) return;
  const mine = ++asked;
  asking = setTimeout(async () => {
    const page = await read('/ui/find?q=' + encodeURIComponent(text)).catch(() => null);
    if (!page || mine !== asked) return;
    $$('[data-hit]', page).forEach((link, at) => {
      const item = Object.assign(document.createElement('li'), { role: 'presentation' });
      item.dataset.found = '';
      const hit = document.importNode(link, true);
      hit.id = 'f' + at;
      hit.setAttribute('role', 'option');
      hit.setAttribute('tabindex', '-1');
      item.append(hit);
      $('#hits').append(item);
    });
    choose(hits(), 0);
  }, 200);
}
$('#palette input')?.addEventListener('input', event => {
  const words = event.target.value.toLowerCase().split(/\s+/);
  $$('#palette li:not([data-found])').forEach(item => {
    item.hidden = !words.every(word => item.textContent.toLowerCase().includes(word));
  });
  choose(hits(), 0);
  find(event.target.value);
});
$('#palette')?.addEventListener('keydown', event => {
  const list = hits(), at = list.findIndex(link => link.getAttribute('aria-selected') === 'true');
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) { event.preventDefault(); choose(list, at + step); }
  else if (event.key === 'Enter') { event.preventDefault(); list[at]?.click(); }
});

// ---- clicks and keys
document.addEventListener('click', event => {
  const pressed = event.target.closest('[data-copy], [data-do], [data-close]');
  if (!pressed) return;
  if (pressed.dataset.copy) return copy(pressed);
  if (!pressed.dataset.do) return pressed.closest('dialog').close();
  event.preventDefault();
  ({ theme: () => theme(pressed), times, palette })[pressed.dataset.do]();
});
const box = $('#single-keys');
if (box) {
  box.checked = kept('shoal-keys') !== 'off';
  box.addEventListener('change', () => cookie('shoal-keys', box.checked ? 'on' : 'off'));
}
const typing = target => target.matches('input:not([type=checkbox]), textarea, select');
let went = 0;
document.addEventListener('keydown', event => {
  if ((event.ctrlKey || event.metaKey) && event.key === 'k' && $('#palette')) { event.preventDefault(); return palette(); }
  if (typing(event.target) || event.ctrlKey || event.metaKey || event.altKey || $('dialog[open]')) return;
  if (!box || !box.checked) return;
  const rows = $$('[data-rows] tr'), at = rows.findIndex(row => row.matches('.here'));
  const go = to => {
    rows[at]?.classList.remove('here');
    rows[to]?.classList.add('here');
    $('a', rows[to])?.focus();
  };
  if (went && Date.now() - went < 900) {
    went = 0;
    const entry = $(`.nav a[data-key="${CSS.escape(event.key)}"]`);
    if (entry) location = entry.href;
    return;
  }
  const act = {
    g: () => { went = Date.now(); },
    '/': () => { const field = $('.query input'); if (field) field.focus(); else palette(); },
    j: () => rows.length && go(Math.min(at + 1, rows.length - 1)),
    k: () => rows.length && go(Math.max(at - 1, 0)),
    t: times,
    n: () => { const link = $('a[href^="/ui/jobs/new"]'); if (link) location = link.href; },
    '?': () => $('#keys').showModal(),
  }[event.key];
  if (act) { event.preventDefault(); act(); }
});

// ---- live: an event says that something changed; the page is read again, at most once a second, and what differs is replaced
const LOGGED_OUT = new Error('the login has ended');
async function read(url) {
  const response = await fetch(url, { headers: { accept: 'text/html' } });
  if (response.status === 401 || new URL(response.url).pathname === '/ui/login') throw LOGGED_OUT;
  if (!response.ok || response.redirected) throw new Error(response.status);
  return new DOMParser().parseFromString(await response.text(), 'text/html');
}
const busy = element => element.contains(document.activeElement) && document.activeElement !== document.body
  || $('dialog[open]') || (!getSelection().isCollapsed && getSelection().containsNode(element, true));
let left; // An old part that was in use when the page was read: the page is read again when it is not.
const changes = []; // Made at once: the question what is in use makes the browser lay out what was changed before it.
function change(old, fresh) {
  if (old.outerHTML === fresh.outerHTML) return;
  if (busy(old)) left = old; else changes.push([old, fresh]);
}
const parts = page => $$('[data-live]', page).map(part => part.id).join();
function replace(page) {
  setClock(page);
  ages(document);
  ages(page); // An age alone is no difference.
  left = null;
  if (parts(page) !== parts(document)) change($('main'), $('main', page)); // Such as the overview after the first server.
  for (const old of $$('[data-live]')) if (page.getElementById(old.id)) change(old, page.getElementById(old.id));
  rows(page);
  for (const [old, fresh] of changes.splice(0)) old.replaceWith(document.importNode(fresh, true));
  speak();
}
let said = $('[data-say]')?.dataset.say, spoke = 0, speaking;
function speak() { // At most every five seconds; what was not said then is said after them.
  clearTimeout(speaking);
  const now = $('[data-say]')?.dataset.say, early = spoke + 5000 - Date.now();
  if (!now || now === said) return;
  if (early > 0) { speaking = setTimeout(speak, early); return; }
  [said, spoke] = [now, Date.now()];
  say(now);
}
function rows(page) { // Rows change in place and never move under the hand; new ones are offered, and gone ones are marked.
  if (!$('form.filters')) return;
  const place = row => $('a', row)?.getAttribute('href');
  const mine = $$('[data-rows] tr'), known = new Map(mine.map(row => [place(row), row]));
  const now = new Map($$('[data-rows] tr', page).map(row => [place(row), row]));
  for (const [at, old] of known) {
    const row = now.get(at);
    old.classList.toggle('gone', !row);
    row?.classList.toggle('here', old.matches('.here'));
    if (row) change(old, row);
  }
  const fresh = [...now.keys()].filter(at => !known.has(at)).length;
  const offer = $('#fresh') ?? Object.assign(document.createElement('a'), { id: 'fresh', className: 'btn s' });
  offer.href = location.href;
  offer.textContent = `${fresh} new, show`;
  if (!fresh) offer.remove(); else if (!offer.isConnected) $('form.filters').append(offer); // Above the rows that it is about.
}

// ---- ages: the words of a time since or until move with the clock of the controller; the rules are those of ui/src/time.rs
let ahead = 0; // By how many milliseconds the clock of the controller is ahead of this one.
const setClock = page => { ahead = Date.parse(page.body.dataset.now) - Date.now() || 0; };
function duration(seconds) {
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
  if (minutes < 1) return `${seconds} s`;
  if (hours < 1) return `${minutes} min`;
  if (days < 1) return hours < 10 && minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return days === 1 ? '1 day' : `${days} days`;
}
function tick() {
  if (document.hidden || !document.body.dataset.stream) return; // A page without a stream says as of when it is; its ages stand.
  if (left && !busy(left)) { left = null; refresh(); }
  ages(document);
}
function ages(within) {
  const now = Math.floor((Date.now() + ahead) / 1000);
  for (const words of $$('time .rel', within)) {
    const since = now - Date.parse(words.parentNode.dateTime) / 1000, from = words.textContent;
    const relative = /^(in .*|.* ago|just now)$/.test(from);
    const text = !relative ? duration(Math.max(since, 0))
      : since === 0 ? 'just now' : since < 0 ? `in ${duration(-since)}` : `${duration(since)} ago`;
    if (text !== from && !Number.isNaN(since)) words.textContent = text;
  }
}
setClock(document);
setInterval(tick, 1000);

const live = $('.live');
const clock = () => new Date().toISOString().slice(11, 16);
// What the page knows: its stream is reached or has ended, its last reading has failed, its login has ended.
let reached = false, ended = false, behind = false, out = false, seen = '';
function state(name, text) {
  if (!live || live.dataset.state === name) return;
  live.dataset.state = name;
  live.textContent = text;
  if (name !== 'login') return;
  const place = '/ui/login?next=' + encodeURIComponent(location.pathname + location.search);
  live.append(Object.assign(document.createElement('a'), { href: place, textContent: 'Log in again' }));
}
function show() {
  if (out) state('login', '');
  else if (behind || !reached && !ended) state('lost', 'Reconnecting, as of ' + (seen || clock()) + ' UTC');
  else if (ended) state('still', 'Ended');
  else state('live', 'Live');
}
const loggedOut = () => { out = true; leave(); show(); };
let stream, changed = false, reading = false, reread, wait = 1000;
const jitter = milliseconds => milliseconds * (0.75 + Math.random() / 2);
async function refresh() {
  if (reading) { changed = true; return; }
  reading = true;
  clearTimeout(reread);
  try {
    replace(await read(location.href));
    [seen, wait] = [clock(), 1000];
    if (behind || out) { behind = out = false; show(); }
  } catch (error) {
    if (error === LOGGED_OUT) loggedOut();
    else { // What the page shows is old, also while its stream is open.
      behind = true;
      show();
      wait = Math.min(wait * 2, 30000);
      reread = setTimeout(() => { if (!document.hidden) refresh(); }, jitter(wait));
    }
  }
  setTimeout(() => { reading = false; if (changed) { changed = false; refresh(); } }, 1000);
}
// One stream at a time: whatever an older one does changes nothing. A hidden page has none.
let generation = 0, again, pause = 1000;
function leave() {
  generation += 1;
  clearTimeout(again);
  stream?.abort();
}
// The place of the stream with the last event that was received in place of that of the page.
let last = '';
function from(url) {
  if (!last) return url;
  const place = new URL(url, location.href);
  place.searchParams.set('after', last);
  return place;
}
async function follow(url) {
  leave();
  const mine = generation, control = stream = new AbortController();
  let late, rest = '', over = false;
  const beat = () => { clearTimeout(late); late = setTimeout(() => control.abort(), 35000); };
  try {
    beat();
    const response = await fetch(from(url), { headers: { accept: 'text/event-stream' }, signal: control.signal });
    if (response.status === 401) { clearTimeout(late); return mine === generation ? loggedOut() : undefined; }
    if (!response.ok) throw new Error(response.status);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    reached = true;
    out = false;
    show();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) { over = true; break; }
      beat();
      pause = 1000;
      // A chunk can end within a line.
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines) if (line.startsWith('id: ')) last = line.slice(4);
      if (lines.some(line => line.startsWith('data:'))) refresh();
      if (lines.includes('event: end')) { clearTimeout(late); ended = true; show(); return; }
    }
  } catch { /* Below it is tried again. */ }
  clearTimeout(late);
  if (mine !== generation) return;
  // A stream that the controller has ended is resumed; only the failure of that says that something is lost.
  if (!over) { reached = false; show(); }
  pause = Math.min(pause * 2, 30000);
  again = setTimeout(() => follow(url), jitter(pause));
}
const url = document.body.dataset.stream;
if (url) {
  if (!document.hidden) follow(url);
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) leave(); else { refresh(); follow(url); }
  });
  setInterval(() => { if (!document.hidden && !out && $('[data-again]')) refresh(); }, 10000); // Reads of media, and the jobs before a queued one, make no events of its job.
}
