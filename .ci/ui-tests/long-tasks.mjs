// The longest task of the main thread of a page while it is opened and while 20 events make it read itself again, and the time from the
// request that changes a server to the change of its open page. Printed, never judged.
// A script that has a loop of 60 ms, and one that reads the page 150 ms late, must be reported: a measurement that cannot see them proves nothing.
// Usage: UI_ONLY=long-tasks.mjs .ci/ui PROGRAM URL COOKIE PROOF SERIAL
import { check, finish, launch, pause } from './kit.mjs';

const [url, cookie, proof, serial] = process.argv.slice(3), AIM = 50, EVENTS = 20;
async function change(on) {
  const headers = { cookie, 'x-csrf-token': proof, 'content-type': 'application/json' };
  const response = await fetch(`${url}/api/v1/servers/${serial}/maintenance`, { method: on ? 'POST' : 'DELETE', headers, body: on ? '{}' : undefined });
  if (!response.ok) throw new Error(`maintenance: ${response.status} ${await response.text()}`);
}
async function open(browser) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const [name, value] = cookie.split(/=(.*)/);
  await context.addCookies([{ name, value, domain: '127.0.0.1', path: '/', secure: true }]);
  return [context, await context.newPage()];
}
// The script of the page with `text` after `from`.
async function spoil(page, from, text) {
  await page.route('**/ui/assets/*.js', async route => {
    const response = await route.fetch(), script = await response.text();
    check(script.split(from).length === 2, `the script has not one place: ${from}`);
    await route.fulfill({ response, body: script.replace(from, () => from + text) });
  });
}
// The median of the times from a request that changes the server to the change of its page, in milliseconds.
async function seen(browser, late) {
  const [context, page] = await open(browser), times = [];
  await page.addInitScript(() => {
    window.changed = [];
    const look = list => { if (list.some(one => [...one.addedNodes].some(node => node.matches?.('[data-live]')))) window.changed.push(Date.now()); };
    new MutationObserver(look).observe(document, { childList: true, subtree: true });
  });
  if (late) await spoil(page, 'async function refresh() {\n', `  await new Promise(done => setTimeout(done, ${late}));\n`);
  await page.goto(`${url}/ui/servers/${serial}`);
  await page.locator('.live[data-state=live]').waitFor();
  for (let at = 0; at < 14; at += 1) {
    await pause(1400); // A page is read at most once a second.
    await page.evaluate(() => { window.changed = []; });
    const begun = Date.now();
    await change(at % 2 === 0);
    await page.waitForFunction(() => window.changed.length > 0, null, { timeout: 5000 });
    times.push(await page.evaluate(() => window.changed[0]) - begun);
  }
  await context.close();
  return times.sort((one, other) => one - other)[times.length / 2];
}
async function longest(browser, place, loop) {
  const [context, page] = await open(browser);
  await page.addInitScript(() => {
    window.tasks = [];
    new PerformanceObserver(list => window.tasks.push(...list.getEntries().map(one => one.duration))).observe({ type: 'longtask', buffered: true });
  });
  // At each reading of the page, as a slow replacement would be.
  if (loop) await spoil(page, 'function replace(page) {\n', `  for (const end = performance.now() + ${loop}; performance.now() < end;);\n`);
  await page.goto(url + place);
  await page.locator('.live[data-state=live]').waitFor();
  await pause(500);
  const tasks = () => page.evaluate(() => window.tasks), opened = await tasks();
  for (let at = 0; at < EVENTS; at += 1) { await change(at % 2 === 0); await pause(250); }
  await pause(1500);
  const all = await tasks(), reads = await page.evaluate(() => performance.getEntriesByType('resource').filter(one => one.initiatorType === 'fetch' && one.name === location.href).length);
  check(reads > 2, `${place}: ${reads} readings of the page after ${EVENTS} events`);
  await context.close();
  return { opened: Math.max(0, ...opened), live: Math.max(0, ...all.slice(opened.length)), reads };
}

await finish(async () => {
  const browser = await launch();
  try {
    const words = duration => duration ? `${Math.round(duration)} ms` : `none over ${AIM} ms`;
    for (const place of ['/ui/', '/ui/jobs', '/ui/servers']) {
      const { opened, live, reads } = await longest(browser, place, 0);
      console.log(`${place}: longest task ${words(opened)} while it is opened, ${words(live)} in ${reads} readings after ${EVENTS} events; aim ${AIM} ms`);
    }
    const { live } = await longest(browser, '/ui/servers', 60);
    check(live >= 60, `the measurement cannot fail: a loop of 60 ms in the script is reported as ${words(live)}`);
    console.log(`a loop of 60 ms in the script is reported: ${words(live)}`);
    const [prompt, late] = [await seen(browser, 0), await seen(browser, 150)];
    console.log(`a change is seen on the open page of its server after ${prompt} ms, median; aim 100 ms`);
    check(late >= prompt + 100, `the measurement cannot fail: with a reading that is 150 ms late it is ${late} ms`);
    console.log(`a script that reads the page 150 ms late is reported: ${late} ms`);
  } finally { await browser.close(); }
});
