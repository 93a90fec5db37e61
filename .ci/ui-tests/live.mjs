// The rules of a live page, the keys, and a job on a phone. A rule runs on a page with the script of the controller and, beside it, on
// pages with one defect each, on which it must fail with the message that belongs to the defect. The controller has servers whose
// BMC responds to nothing, so that nothing happens but what a rule requests.
// UI_SCRIPT=FILE tests a script that is not built into the program yet; UI_RULE=NAME runs one rule; UI_SECONDS=1 prints how long each takes.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { check, finish, folder, freePort, launch, pause, start, steps, until } from './kit.mjs';

const port = await freePort(), url = `http://127.0.0.1:${port}`;
let controller, token, cookie;
async function serve() {
  controller = start(['serve', '--storage-root', join(folder, 'data'), '--controller-http-addr', `127.0.0.1:${port}`, '--controller-https-addr', 'off']);
  await until('the controller', () => fetch(url + '/healthz').then(response => response.ok, () => false), 30);
}
async function api(method, path, body) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const response = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.json();
}
const maintenance = (serial, on) => api(on ? 'POST' : 'DELETE', `/api/v1/servers/${serial}/maintenance`, on ? { reason: 'a test' } : undefined);
// A job that stays in the queue, because its server is in maintenance.
const job = async serial => (await api('POST', `/api/v1/servers/${serial}/condition`, { kind: 'powerCycleHard' })).id;
let addresses = 1;
async function server(serial) {
  // Each has its own address: one job at a time uses a BMC.
  await api('POST', '/api/v1/servers', { serial, bmc_address: `http://127.0.0.${addresses++}:1`, bmc_username: 'admin', bmc_password: 'a-password-of-the-test' });
  await maintenance(serial, true);
}
const cancel = async serial => {
  const { jobs } = await api('GET', `/api/v1/jobs?server_serial=${serial}&status=queued`);
  for (const one of jobs) await api('POST', `/api/v1/jobs/${one.job_id}/cancel`, { reason: 'a test' });
};

// What pages do together: an action runs once, when every page of the rule has reached it or has failed.
class Meeting {
  constructor(pages) { [this.pages, this.waiting] = [pages, []]; }
  reach(action) {
    return new Promise((done, failed) => { this.waiting.push([action, done, failed]); this.look(); });
  }
  leave() { this.pages -= 1; this.look(); }
  look() {
    if (!this.waiting.length || this.waiting.length < this.pages) return;
    const all = this.waiting.splice(0);
    Promise.resolve().then(all[0][0]).then(
      result => all.forEach(([, done]) => done(result)),
      error => all.forEach(([, , failed]) => failed(error)),
    );
  }
}

const rules = [];
let reported = 0;
// `defects`: what is replaced in the script, by what, and the message of the check that must fail.
const rule = (name, place, defects, run, options = {}) => rules.push({ name, place, defects, run, options });

async function visit(browser, { name, place, run, options }, defect, number, meeting) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: 'reduce', ...options.context });
  const faults = [], misplaced = [];
  let ended = false;
  try {
    await context.addCookies([cookie]);
    const page = await context.newPage();
    page.setDefaultTimeout(20000);
    page.on('pageerror', error => faults.push(String(error)));
    // A page waits long for what holds, and briefly for what its defect prevents.
    const brief = options.brief ?? 3;
    const soon = (what, wanted) => until(what, wanted, defect && what.includes(defect[2]) ? brief : 20);
    const kind = options.asset ?? 'js';
    if (defect || process.env.UI_SCRIPT) {
      const serve = async route => {
        let body = kind === 'js' && process.env.UI_SCRIPT ? readFileSync(process.env.UI_SCRIPT, 'utf8') : await (await route.fetch()).text();
        if (defect) {
          if (body.split(defect[0]).length !== 2) misplaced.push(`not once in the ${kind}: ${defect[0]}`);
          body = body.replace(defect[0], () => defect[1]);
        }
        await route.fulfill({ body, contentType: kind === 'js' ? 'text/javascript' : 'text/css' });
      };
      // The end of a visit takes away what a page still reads.
      await page.route(`**/ui/assets/*.${kind}`, route => serve(route).catch(error => { if (!ended) throw error; }));
    }
    if (options.prepare) await options.prepare(context, page);
    if (place) await page.goto(url + place);
    if (options.live) await page.locator('.live[data-state=live]').waitFor({ state: 'attached' });
    // Since when a page read itself again, by its own clock.
    const reads = () => page.evaluate(() => performance.getEntriesByType('resource')
      .filter(one => one.initiatorType === 'fetch' && one.name === location.href).map(one => one.startTime));
    await run({ page, soon, number, reads, brief: defect ? 4000 : 20000, together: action => meeting.reach(action), marked: selector => page.locator(selector).evaluate(one => one.mark === true),
      mark: selector => page.locator(selector).evaluate(one => { one.mark = true; }) });
    return { faults, misplaced };
  } catch (error) {
    return { error, faults, misplaced };
  } finally {
    meeting.leave();
    ended = true;
    await context.close();
  }
}
async function hold(browser, one) {
  const visits = [null, ...one.defects], results = [];
  if (one.options.alone) {
    for (const [number, defect] of visits.entries()) results.push(await visit(browser, one, defect, number, new Meeting(1)));
  } else {
    const meeting = new Meeting(visits.length);
    results.push(...await Promise.all(visits.map((defect, number) => visit(browser, one, defect, number, meeting))));
  }
  const [honest, ...others] = results;
  if (honest.error) throw new Error(`${one.name}: ${honest.error.stack}`);
  check(honest.faults.length === 0, `${one.name}: ${honest.faults.join('\n')}`);
  others.forEach(({ error, misplaced }, at) => {
    const [from, , message] = one.defects[at];
    check(misplaced.length === 0, `${one.name}: ${misplaced}`);
    check(error?.message.includes(message), `the check cannot fail: ${one.name}, "${message}" with another \`${from}\`: ${error?.message ?? 'no error'}`);
    reported += 1;
  });
}

// ---- live pages
const servers = page => page.locator('[data-rows] tr th a').allTextContents().then(all => all.join());

rule('rows', '/ui/jobs?q=serial%3AROW-*', [
  ['  rows(page);\n', "  $('[data-rows]').replaceWith(document.importNode($('[data-rows]', page), true));\n  rows(page);\n", 'a new row is offered'],
  ['    if (row) change(old, row);\n', '', 'a row changes in its place'],
  ['  const fresh = [...now.keys()]', "  for (const at of now.keys()) $('[data-rows]').append(...$$('[data-rows] tr').filter(row => place(row) === at));\n  const fresh = [...now.keys()]", 'rows stay in their order'],
  ['if (old.outerHTML === fresh.outerHTML) return;', '', 'a row that did not change is not replaced'],
  ["else if (!offer.isConnected) $('form", "else $('form", 'the offer keeps the focus'],
], async ({ page, soon, together, mark, marked }) => {
  const before = await servers(page);
  check(before === 'ROW-2,ROW-1', `the list is not that of the test: ${before}`);
  await mark('[data-rows] tr:has-text("ROW-1")');
  await together(() => job('ROW-3'));
  await soon('a new row is offered', async () => await page.locator('#fresh').count() && await page.locator('#fresh').textContent() === '1 new, show');
  check(await page.evaluate(() => !!(document.querySelector('#fresh').compareDocumentPosition(document.querySelector('[data-rows]')) & Node.DOCUMENT_POSITION_FOLLOWING)), 'the offer stands above the list');
  await page.locator('#fresh').focus();
  await together(() => cancel('ROW-2'));
  await soon('a row changes in its place', async () => (await page.locator('[data-rows] tr').filter({ hasText: 'ROW-2' }).textContent()).includes('Cancelled'));
  const after = await servers(page);
  check(await marked('[data-rows] tr:has-text("ROW-1")'), 'a row that did not change is not replaced');
  check(after === before, `rows stay in their order: ${after}`);
  check(await page.evaluate(() => document.activeElement.id) === 'fresh', 'the offer keeps the focus');
  await page.keyboard.press('Enter');
  await page.locator('[data-rows] tr').filter({ hasText: 'ROW-3' }).waitFor();
}, { live: true });

rule('gone rows', '/ui/jobs?q=serial%3AGONE-*%20condition%3Agated', [
  ["    old.classList.toggle('gone', !row);\n", '    if (!row) { old.remove(); continue; }\n', 'a row that is gone stays'],
  ["    old.classList.toggle('gone', !row);\n", '', 'a row that is gone is marked'],
  ["  if (!$('form.filters')) return;\n", "  if (!$('[data-rows]', page)) return;\n", 'the last row of a list is marked'],
], async ({ page, soon, together }) => {
  await page.keyboard.press('j');
  check(await page.evaluate(() => document.activeElement.textContent) === 'GONE-2', 'the cursor is not on the row of the test');
  await together(() => cancel('GONE-2'));
  await soon('a row that is gone is marked', async () => await servers(page) !== 'GONE-2,GONE-1' || await page.locator('tr.gone').count() === 1);
  check(await servers(page) === 'GONE-2,GONE-1', 'a row that is gone stays');
  check(await page.evaluate(() => document.activeElement.textContent) === 'GONE-2', 'the cursor stays on a row that is gone');
  await together(() => cancel('GONE-1'));
  await soon('the last row of a list is marked', async () => await page.locator('tr.gone').count() === 2);
}, { live: true });

rule('what is in use', '/ui/servers/USED', [
  ['element.contains(document.activeElement) &&', 'false &&', 'what has the focus is not replaced'],
  ['containsNode(element, true)', 'containsNode(element)', 'marked text is not replaced'],
  ["  || $('dialog[open]') ||", '  ||', 'nothing is replaced below an open question'],
  ['if (left && !busy(left)) {', 'if (false) {', 'what was in use is read again'],
], async ({ page, soon, together, mark, marked, reads }) => {
  await page.locator('#history a').first().focus();
  await mark('#history');
  await together(() => job('USED'));
  await soon('a part that is not in use is replaced', async () => await page.locator('#now .why-box').count() === 1);
  check(await marked('#history') && await page.evaluate(() => !!document.activeElement.closest('#history')), 'what has the focus is not replaced');
  await page.evaluate(() => document.activeElement.blur());
  await soon('what was in use is read again', async () => await page.locator('#history tbody tr').count() === 1);
  // Marked from above the title to within it.
  await mark('#title');
  const words = () => page.evaluate(() => String(getSelection()));
  await page.evaluate(() => getSelection().setBaseAndExtent(document.querySelector('.crumbs a').firstChild, 0, document.querySelector('#title').firstChild, 3));
  const text = await words();
  check(text.includes('USE'), `the text of the test is not marked: ${text}`);
  await together(() => cancel('USED'));
  await soon('the other parts are replaced', async () => (await page.locator('#history').textContent()).includes('Cancelled'));
  check(await marked('#title') && await words() === text, 'marked text is not replaced');
  await page.evaluate(() => getSelection().removeAllRanges());
  await soon('what was marked is read again', async () => !await marked('#title'));
  await page.keyboard.press('?');
  await mark('#title');
  const seen = (await reads()).length;
  await together(() => maintenance('USED', false));
  await soon('the page is read below an open question', async () => (await reads()).length > seen);
  await pause(300);
  check(await marked('#title') && await page.locator('#keys').isVisible(), 'nothing is replaced below an open question');
  await page.keyboard.press('Escape');
  await soon('what was below a question is read again', async () => !await marked('#title'));
}, { live: true });

rule('a burst of events', '/ui/', [
  ['changed = false; refresh(); } }, 1000);', 'changed = false; refresh(); } }, 100);', 'at most one read a second'],
  ['if (reading) { changed = true; return; }', 'if (reading) return;', 'the last event is read'],
], async ({ page, soon, together, reads }) => {
  await together(async () => {
    for (let at = 0; at < 20; at += 1) { await maintenance('BURST', at % 2 === 1); await pause(120); }
    // One event that is read, and one while no read is permitted.
    await pause(2500);
    await maintenance('BURST', false);
    await pause(700);
    await maintenance('BURST', true);
  });
  await pause(1500);
  const begun = await reads(), gaps = begun.slice(1).map((at, before) => at - begun[before]);
  // A busy machine delays the first of two reads more than the second one.
  check(Math.min(...gaps) > 700, `at most one read a second: ${gaps.map(Math.round)}`);
  check(begun.length >= 3, `the page follows a burst: ${begun.length} reads`);
  await soon('the last event is read', () => page.evaluate(async () => {
    const now = new DOMParser().parseFromString(await (await fetch(location.href)).text(), 'text/html');
    const [one, other] = [document, now].map(page => page.querySelector('#just').textContent.replace(/\d+ (s|min) ago|just now/g, ''));
    return one === other;
  }));
}, { live: true });

rule('a hidden page', null, [
  ['if (document.hidden) leave();', 'if (document.hidden) ;', 'a hidden page has no stream'],
  ['else { refresh(); follow(url); }', 'else follow(url);', 'a page that is shown is read again'],
  ['else { refresh(); follow(url); }', 'else refresh();', 'a page that is shown has a stream'],
], async ({ page, soon, together, reads }) => {
  // The stream of a job has its events only.
  await page.goto(`${url}/ui/jobs/${await together(() => job('HIDDEN'))}`);
  await page.locator('.live[data-state=live]').waitFor();
  const closed = [], opened = [];
  const isStream = request => request.url().includes('/events?');
  page.on('requestfailed', request => { if (isStream(request)) closed.push(request); });
  page.on('request', request => { if (isStream(request)) opened.push(request); });
  const show = shown => page.evaluate(hidden => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
  }, !shown);
  await show(false);
  await soon('a hidden page has no stream', () => closed.length === 1);
  await pause(1500);
  const before = (await reads()).length;
  await show(true);
  await soon('a page that is shown has a stream', () => opened.length === 1);
  await soon('a page that is shown is read again', async () => (await reads()).length > before);
  await show(false);
  await pause(1500);
  const [read, streams] = [(await reads()).length, opened.length];
  await together(() => cancel('HIDDEN'));
  await pause(1200);
  check((await reads()).length === read && opened.length === streams, 'a hidden page is not read');
  await show(true);
  await soon('a page that is shown again shows what happened', async () => (await page.locator('h1').innerText()).includes('Cancelled'));
});

rule('announcements', null, [
  ['early = spoke + 5000 - Date.now()', 'early = 0', 'at most one announcement in five seconds'],
  ['speaking = setTimeout(speak, early);', '', 'the last state is announced'],
  ['  speak();\n}', '}', 'a change is announced'],
], async ({ page, soon, together }) => {
  const place = `${url}/ui/jobs/${await together(() => job('SAID'))}`;
  await page.goto(place);
  await page.locator('.live[data-state=live]').waitFor();
  await page.evaluate(() => {
    window.heard = [];
    new MutationObserver(() => window.heard.push([performance.now(), document.querySelector('#say').textContent])).observe(document.querySelector('#say'), { childList: true });
  });
  // The words of the job are those of the test, and a page that is shown again is read again: no event follows the last state, and no
  // reading of a queued job, which would announce it as well.
  let words = '';
  await page.route(place, async route => {
    const response = await route.fetch();
    await route.fulfill({ response, body: (await response.text()).replace(/data-say="[^"]*"/, `data-say="${words}"`).replaceAll(' data-again', '') });
  });
  const become = async text => {
    words = text;
    await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
    await soon(`the page shows: ${text}`, async () => await page.locator('#why').getAttribute('data-say') === text);
  };
  const heard = () => page.evaluate(() => window.heard);
  await become('one');
  await soon('a change is announced', async () => (await heard()).length > 0);
  await become('two');
  await become('three');
  await soon('the last state is announced', async () => (await heard()).at(-1)[1] === 'three');
  const all = await heard(), gaps = all.slice(1).map(([at], before) => at - all[before][0]);
  check(all[0][1] === 'one' && Math.min(...gaps) > 4500, `at most one announcement in five seconds: ${gaps.map(Math.round)}`);
}, { brief: 7 });

// ---- keys
const state = page => page.evaluate(() => ({ times: document.documentElement.dataset.times, here: [...document.querySelectorAll('[data-rows] tr')].findIndex(row => row.matches('.here')) }));
const keys = (name, place, defects, run, options) => rule(`key ${name}`, place, defects, run, options);
keys('/', '/ui/jobs', [["    '/': () =>", "    '~': () =>", 'goes to the filter']], async ({ page, soon }) => {
  await page.keyboard.press('/');
  const field = page.getByLabel('Filter jobs');
  check(await field.evaluate(one => one === document.activeElement), 'the key goes to the filter');
  await page.keyboard.type('kt/');
  check(await field.inputValue() === 'kt/' && (await state(page)).times === undefined, 'in a field the keys are text');
  await page.goto(url + '/ui/settings');
  await page.keyboard.press('/');
  check(await page.locator('#palette').isVisible(), 'without a filter the key opens the palette');
});
keys('k', '/ui/jobs?q=serial%3AROW-*', [['go(Math.max(at - 1, 0))', 'go(at)', 'goes to the previous row'], ['go(Math.min(at + 1, rows.length - 1))', 'go(at + 1)', 'stays on the last row']], async ({ page, soon }) => {
  const here = async () => (await state(page)).here;
  for (let at = 0; at < 4; at += 1) await page.keyboard.press('j');
  check(await here() === 2, 'j stays on the last row');
  await page.keyboard.press('k');
  check(await here() === 1, 'k goes to the previous row');
  for (let at = 0; at < 3; at += 1) await page.keyboard.press('k');
  check(await here() === 0, 'k stays on the first row');
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/ui\/jobs\/[0-9a-f-]{36}$/);
});
keys('t', '/ui/jobs?q=serial%3AROW-*', [['    t: times,\n', '', 'shows clock times'], ["cookie('shoal-times', clock ? 'abs' : 'rel');", '', 'keeps clock times']], async ({ page, soon }) => {
  const seen = name => page.locator(`[data-rows] time .${name}`).first().isVisible();
  check(await seen('rel') && !await seen('abs'), 'a page begins with times since');
  await page.keyboard.press('t');
  check(await seen('abs') && !await seen('rel'), 't shows clock times');
  await page.reload();
  check(await seen('abs'), 'the next page keeps clock times');
  await page.keyboard.press('t');
  check(await seen('rel'), 't shows times since');
});
keys('n', '/ui/servers', [['    n: () =>', '    N: () =>', 'shows the form']], async ({ page, soon }) => {
  await page.keyboard.press('n');
  await soon('n shows the form of a job', () => page.url() === url + '/ui/jobs/new');
});
keys('?', '/ui/jobs', [["    '?': () =>", "    '¿': () =>", 'shows the keys'], ["|| $('dialog[open]')) return;", ') return;', 'does nothing below']], async ({ page, soon }) => {
  await page.keyboard.press('?');
  check(await page.locator('#keys').isVisible(), '? shows the keys');
  await page.keyboard.press('t');
  check((await state(page)).times === undefined, 'a key does nothing below an open dialog');
  await page.keyboard.press('Escape');
  check(!await page.locator('#keys').isVisible(), 'Esc closes the keys');
});
keys('g', '/ui/account', [['.nav a[data-key="${CSS.escape(event.key)}"]', '.nav a[data-key="${CSS.escape(event.code)}"]', 'leads to its page'], ['Date.now() - went < 900', 'Date.now() - went < 90000', 'a letter long after g']], async ({ page, soon }) => {
  for (const [letter, place] of [['o', '/ui/'], ['j', '/ui/jobs'], ['s', '/ui/servers'], ['r', '/ui/registry'], ['e', '/ui/events'], ['c', '/ui/settings']]) {
    // Two keys that a busy machine delivers more than 900 ms apart are no shortcut: they are pressed again.
    await soon(`g ${letter} leads to its page`, async () => {
      await page.keyboard.press('g');
      await page.keyboard.press(letter);
      return until('the page', () => page.url() === url + place, 2).catch(() => false);
    });
    await page.waitForLoadState();
  }
  let went = false;
  page.on('request', request => { went ||= request.isNavigationRequest(); });
  await page.keyboard.press('g');
  await pause(1000);
  await page.keyboard.press('s');
  await pause(500);
  check(!went, 'a letter long after g goes nowhere');
});
keys('off', '/ui/jobs', [['if (!box || !box.checked) return;', 'if (!box) return;', 'acts no more'], ["cookie('shoal-keys', box.checked ? 'on' : 'off')", '0', 'on the next page']], async ({ page, soon }) => {
  await page.keyboard.press('?');
  await page.getByLabel('Single keys act').press('Space');
  await page.keyboard.press('Escape');
  await page.keyboard.press('t');
  check((await state(page)).times === undefined, 'a single key acts no more');
  await page.reload();
  await page.keyboard.press('t');
  check((await state(page)).times === undefined, 'a single key acts no more on the next page');
  await page.keyboard.press('Control+k');
  check(await page.locator('#palette').isVisible(), 'Ctrl K still acts');
  await page.keyboard.press('Escape');
  await page.evaluate(() => document.querySelector('#keys').showModal());
  await page.getByLabel('Single keys act').press('Space');
  await page.keyboard.press('Escape');
  await page.keyboard.press('t');
  check((await state(page)).times === 'abs', 'a single key acts again');
});
rule('theme', '/ui/jobs', [["  cookie('shoal-theme', next);\n", '', 'the next page keeps it'], ['else root.dataset.theme = next;', '', 'changes the colours']], async ({ page, soon }) => {
  const ground = () => page.evaluate(() => ['color', 'backgroundColor'].map(name => getComputedStyle(document.querySelector('.card'))[name]).join());
  const button = page.getByRole('button', { name: /^Theme/ }), system = await ground();
  await button.click();
  check(await ground() === system, 'the light theme is that of a light system');
  await button.click();
  const dark = await ground();
  check(dark !== system, 'the button changes the colours');
  await page.reload();
  check(await ground() === dark, 'the next page keeps it');
  await button.click();
  check(await ground() === system, 'the third one is that of the system again');
}, { context: { colorScheme: 'light' } });
const refused = page => page.addInitScript(() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); });
const absent = page => page.addInitScript(() => { Object.defineProperty(Navigator.prototype, 'clipboard', { get: () => undefined }); });
const permitted = page => page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: url });
for (const [how, prepare, from, to] of [
  ['with a clipboard', permitted, 'navigator.clipboard?.writeText(text)', "navigator.clipboard?.writeText('')"],
  ['without a clipboard', absent, "document.execCommand('copy')", 'true'],
  ['with a clipboard that the browser refuses', refused, '.then(() => true, () => false)', ''],
]) {
  rule(`copy ${how}`, '/ui/jobs?q=serial%3AROW-*', [[from, to, how.includes('refuses') ? 'the button shows that it has copied' : 'the text is on the clipboard']], async ({ page, soon, number }) => {
    // The clipboard is that of the browser: what another page copied is overwritten first.
    const field = page.getByLabel('Filter jobs');
    await field.fill(`before ${number}`);
    await field.press('Control+a');
    await field.press('Control+c');
    await page.locator('[data-rows] th a').first().click();
    const button = page.locator('.head [data-copy]').first(), text = await button.getAttribute('data-copy');
    await button.click();
    await soon('the button shows that it has copied', async () => await page.locator('#say').textContent() === `Copied ${text}`);
    check(await button.evaluate(one => one === document.activeElement && !one.querySelector('textarea')), 'the button keeps the focus');
    await page.keyboard.press('Control+k');
    await page.keyboard.press('Control+v');
    const pasted = await page.locator('#palette input').inputValue();
    check(pasted === text, `the text is on the clipboard: ${pasted}`);
  }, { alone: true, prepare: (context, page) => prepare(page) });
}

// ---- a phone
rule('a phone', '/ui/jobs?q=serial%3APHONE-*', [
  ['.btn.risk {', '.btn.risk { pointer-events: none;', 'locator.tap'],
], async ({ page, soon, number, brief }) => {
  await page.locator('[data-rows] th a').filter({ hasText: `PHONE-${number}` }).tap();
  await page.getByRole('link', { name: 'Cancel…' }).tap({ timeout: brief });
  await page.getByLabel('Reason').tap();
  await page.keyboard.type('by thumb');
  await page.getByRole('button', { name: 'Cancel the job' }).tap();
  await page.getByText('The cancel is stored').waitFor();
  await soon('the job is cancelled', async () => (await page.locator('h1 .state').innerText()).includes('Cancelled'));
  const cancelled = page.url();
  await page.getByRole('link', { name: 'Retry…' }).tap();
  await page.getByRole('button', { name: 'Retry' }).tap();
  await page.getByText('This is the new job').waitFor();
  check(page.url() !== cancelled, 'the page shows the new job');
  check(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), 'nothing scrolls sideways');
}, { asset: 'css', context: { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true } });

// ---- a controller that does not respond: the last rules, since they stop it
rule('a controller that goes away', '/ui/', [
  ['if (!over) { reached = false; show(); }', '', 'the page says that it is not current'],
  ['again = setTimeout(() => follow(url), jitter(pause));', '', 'the page is current again'],
], async ({ page, soon, together }) => {
  await together(async () => { const ended = new Promise(done => controller.once('exit', done)); controller.kill('SIGKILL'); await ended; });
  const words = page.locator('.live');
  await soon('the page says that it is not current', async () => /^Reconnecting, as of \d\d:\d\d UTC$/.test(await words.textContent()));
  check(await page.getByRole('heading', { name: 'Fleet' }).isVisible(), 'the page stays');
  await page.keyboard.press('t');
  check((await state(page)).times === 'abs', 'the page stays usable');
  await together(async () => { await serve(); await maintenance('AWAY', false); });
  await soon('the page is current again', async () => await words.textContent() === 'Live');
  await soon('the page shows what happened since', async () => (await page.locator('#just').textContent()).includes('AWAY'));
}, { live: true });
rule('a controller that is silent', '/ui/', [
  ['control.abort(), 35000)', 'control.abort(), 350000)', 'the page says that it is not current'],
], async ({ page, soon, together }) => {
  await together(() => controller.kill('SIGSTOP'));
  const words = page.locator('.live');
  try {
    // The clock of the page goes on while it waits for the other page: 7 seconds are left for that.
    await page.clock.fastForward(28000);
    await pause(300);
    check(await words.textContent() === 'Live', 'a silence of 28 seconds is none');
    await page.clock.fastForward(8000);
    await soon('the page says that it is not current', async () => (await words.textContent()).startsWith('Reconnecting'));
  } finally {
    await together(() => controller.kill('SIGCONT'));
  }
  await soon('the page is current again', async () => await words.textContent() === 'Live');
}, { live: true, prepare: context => context.clock.install() });

// A burst is counted, and what is in use is left, while no other rule makes events. The clipboard is one. The last rules stop the controller.
const named = begin => rules.map(({ name }) => name).filter(name => name.startsWith(begin));
let rounds = [
  [['rows', 'a hidden page'], ['gone rows', 'a phone'], ['announcements']],
  [['a burst of events', 'what is in use'], [...named('key'), 'theme'], named('copy')],
  [['a controller that goes away', 'a controller that is silent']],
];
const missed = rules.filter(({ name }) => !rounds.flat(2).includes(name));
if (missed.length) throw new Error(`in no round: ${missed.map(({ name }) => name)}`);
if (process.env.UI_RULE) rounds = [[named(process.env.UI_RULE)]];

await finish(async () => {
  try {
    await serve();
    token = controller.text.match(/^admin token[^:]*: (\S+)$/m)[1];
    const session = await fetch(url + '/api/v1/session', { method: 'POST', headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body: '{}' });
    const [name, value] = session.headers.get('set-cookie').split(';')[0].split(/=(.*)/);
    cookie = { name, value, domain: '127.0.0.1', path: '/', secure: true, httpOnly: true, sameSite: 'Strict' };
    for (const serial of ['ROW-1', 'ROW-2', 'ROW-3', 'GONE-1', 'GONE-2', 'USED', 'BURST', 'HIDDEN', 'SAID', 'PHONE-0', 'PHONE-1', 'AWAY']) await server(serial);
    for (const serial of ['ROW-1', 'ROW-2', 'GONE-1', 'GONE-2', 'PHONE-0', 'PHONE-1']) await job(serial);
    const browser = await launch();
    try {
      const broken = [];
      // The rules of one list run one after another, beside those of the other lists of their round.
      for (const round of rounds) {
        await Promise.all(round.map(async list => {
          for (const one of list.flatMap(name => rules.filter(rule => rule.name === name))) {
            const begun = Date.now();
            await hold(browser, one).catch(error => broken.push(error.stack));
            if (process.env.UI_SECONDS) console.log(`${((Date.now() - begun) / 1000).toFixed(1)} s  ${one.name}`);
          }
        }));
      }
      if (broken.length) throw new Error(broken.join('\n'));
    } finally { await browser.close(); }
    console.log(`live pages, keys and a phone: ${steps()} checks passed, ${reported} defects reported`);
  } finally { controller?.kill('SIGCONT'); }
});
