// The web interface as a person uses it. Every page is checked for: no message on the console, no request to another origin, no
// failed request, no violation that axe finds, no sideways scrolling of the page or of a table, no text over another one. Three
// deliberate defects must be reported.
import { mkdirSync, readFileSync } from 'node:fs';
import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { axe, check, finish, freePort, launch, pause, start, steps, until } from './kit.mjs';

const shots = process.env.UI_SHOTS;

// ---- what every page must hold
const problems = [];
function watch(page, origin) {
  // The browser itself reports the status 401 of the page that a refused login shows.
  const refusedLogin = message => /status of 401/.test(message.text()) && message.location().url.startsWith(origin + '/ui/login');
  page.on('console', message => { if (['error', 'warning'].includes(message.type()) && !refusedLogin(message)) problems.push(`console: ${message.text()}`); });
  page.on('pageerror', error => problems.push(`script: ${error}`));
  page.on('request', request => { if (!request.url().startsWith(origin + '/') && !request.url().startsWith('data:')) problems.push(`request elsewhere: ${request.url()}`); });
  page.on('response', response => { if (response.status() >= 500) problems.push(`${response.status()} ${response.url()}`); });
}
async function violations(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
  return found.violations.map(one => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(' | ')}`);
}
// Tables that scroll sideways, and cells of one row whose texts or marks lie over each other.
const misplaced = page => page.evaluate(() => {
  const words = element => element.textContent.trim().slice(0, 40);
  const boxes = cell => {
    const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), found = [];
    while (walk.nextNode()) {
      const range = document.createRange();
      range.selectNodeContents(walk.currentNode);
      if (!walk.currentNode.parentElement.closest('.unseen')) found.push(...range.getClientRects());
    }
    for (const mark of cell.querySelectorAll('.state, .btn')) found.push(mark.getBoundingClientRect());
    return found.filter(box => box.width > 2 && box.height > 2);
  };
  const over = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 2 && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 2;
  const found = [];
  for (const scroll of document.querySelectorAll('.scroll')) {
    const wide = scroll.scrollWidth - scroll.clientWidth;
    if (wide > 1) found.push(`a table is ${wide} px too wide: ${words(scroll)}`);
  }
  for (const row of document.querySelectorAll('.scroll tbody tr')) {
    const cells = [...row.children].map(cell => [cell, boxes(cell)]);
    cells.forEach(([cell, own], at) => {
      for (const [other, theirs] of cells.slice(at + 1)) {
        if (own.some(one => theirs.some(two => over(one, two)))) found.push(`over each other: "${words(cell)}" and "${words(other)}"`);
      }
    });
  }
  return found;
});
async function sound(page, where) {
  const found = await violations(page);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(found.length === 0, `${where}: axe: ${found.join('\n')}`);
  check(wide <= 0, `${where}: ${wide} px of sideways scrolling`);
  const bad = await misplaced(page);
  check(bad.length === 0, `${where}: ${bad.join('\n')}`);
  check(problems.length === 0, `${where}: ${problems.join('\n')}`);
}
async function shot(page, name) {
  if (!shots) return;
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: join(shots, name + '.png') });
}

async function main() {
  const demo = start(['demo', '--keep', '--json', '--fail-one', '--servers', '4']);
  const kept = await until('the demo', () => demo.text.match(/^\{"keep":.*$/m)?.[0]);
  const { url, token } = JSON.parse(kept).keep;
  const port = await freePort();
  start(['sim', '--serial', 'UI-0001', '--base-port', String(port), '--unit-time', '300ms'], { SHOAL_SIM_PASSWORD: 'a-password-of-the-test' });
  await until('the simulated server', () => fetch(`http://127.0.0.1:${port}/redfish/v1/`).then(response => response.ok, () => false));

  const browser = await launch();
  try {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: 'light', reducedMotion: 'reduce' });
    const page = await context.newPage();
    page.setDefaultTimeout(20000);
    watch(page, url);

    const demoServers = (await (await fetch(url + '/api/v1/servers', { headers: { authorization: `Bearer ${token}` } })).json()).servers.map(one => one.serial);

    // Log in.
    await page.goto(url + '/');
    check(page.url().startsWith(url + '/ui/login'), 'a browser without a login sees the login: ' + page.url());
    await sound(page, 'login');
    await page.getByLabel('Password or token').fill('wrong');
    const refused = page.waitForResponse(response => response.request().method() === 'POST');
    await page.getByRole('button', { name: 'Log in' }).click();
    check((await refused).status() === 401, 'a wrong token is refused');
    await page.getByRole('alert').waitFor();
    await sound(page, 'login refused');
    await page.getByLabel('Password or token').fill(token);
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('heading', { name: 'Fleet' }).waitFor();
    const cookie = (await context.cookies()).find(one => one.name === '__Host-shoal');
    check(cookie?.httpOnly && cookie.sameSite === 'Strict' && cookie.secure, 'the cookie is protected');
    check(!(await page.content()).includes(token), 'the token is in no page');
    await sound(page, 'overview');
    check(await page.locator('#needs li').count() === 1, 'the failed installation needs a person');
    await page.locator('.live[data-state=live]').waitFor();
    await shot(page, 'overview-light');
    const age = page.locator('time .rel').first(), old = await age.textContent();
    check(await until('an age that moves without an event', async () => await age.textContent() !== old), 'ages move');

    // Add a server, look at its BMC.
    await page.getByRole('link', { name: 'Servers', exact: true }).click();
    await sound(page, 'servers');
    await page.getByRole('link', { name: 'Add server' }).click();
    await sound(page, 'new server');
    await page.getByLabel('Serial number').fill('UI-0001');
    await page.getByLabel('BMC address').fill('not an address');
    await page.getByLabel('BMC user').fill('admin');
    await page.getByLabel('BMC password').fill('a-password-of-the-test');
    await page.getByLabel('Labels').fill('site=north rack=n04');
    await page.getByRole('button', { name: 'Add the server' }).click();
    await page.locator('#errs').waitFor();
    problems.splice(0, problems.length, ...problems.filter(text => !/status of 400/.test(text)));
    await sound(page, 'new server refused');
    await page.getByLabel('BMC address').fill(`http://127.0.0.1:${port}`);
    await page.getByLabel('BMC password').fill('a-password-of-the-test');
    await page.getByRole('button', { name: 'Add the server' }).click();
    await page.getByRole('heading', { name: /UI-0001/ }).waitFor();
    await page.getByRole('button', { name: 'Probe the BMC' }).click();
    await page.getByText('The BMC was read just now').waitFor();
    check(await page.locator('.slot').count() > 0, 'the card shows the slots');
    await sound(page, 'server');

    // Run a job to its end, and watch it without a reload.
    await page.getByRole('link', { name: 'New job' }).click();
    await sound(page, 'new job');
    check(await page.getByLabel('Server').inputValue() === 'UI-0001', 'the server is filled in');
    // A mistake in the recipe: its line, and the button that mends it. The key Enter previews, and mends nothing.
    const text = page.getByLabel('Recipe, as JSON'), recipe = await text.inputValue();
    await text.fill(recipe.replace('install-linux.target', 'install-linus.target'));
    await page.getByRole('button', { name: 'Preview' }).click();
    const mend = page.getByRole('button', { name: 'Use install-linux.target' });
    await mend.waitFor();
    problems.splice(0, problems.length, ...problems.filter(text => !/status of 400/.test(text)));
    await sound(page, 'a recipe with a mistake');
    await shot(page, 'new-job-repair-light');
    const line = 1 + recipe.split('\n').findIndex(text => text.includes('install-linux.target'));
    check((await page.locator('#errs').innerText()).includes(`Line ${line}.`), `the mistake has its line: ${await page.locator('#errs').innerText()}`);
    const sent = page.waitForRequest(request => request.method() === 'POST');
    await page.getByLabel('Priority').press('Enter');
    check(!(await sent).postData().includes('repair='), 'the key Enter mends nothing');
    await mend.waitFor();
    await mend.click();
    await page.getByText('It would be accepted').waitFor();
    check(await text.inputValue() === recipe, 'the rest of the recipe is as it was typed');
    problems.splice(0, problems.length, ...problems.filter(text => !/status of 400/.test(text)));
    await sound(page, 'a mended recipe');
    await page.getByRole('button', { name: 'Preview' }).click();
    await page.getByText('It would be accepted').waitFor();
    await sound(page, 'preview');
    await shot(page, 'new-job-light');
    await page.getByRole('button', { name: 'Create the job' }).click();
    await page.locator('h1 .state').waitFor();
    const loads = [];
    page.on('framenavigated', frame => { if (frame === page.mainFrame()) loads.push(frame.url()); });
    await page.locator('h1 .state.done').waitFor({ timeout: 90000 });
    check(loads.length === 0, 'the page followed the job without a reload');
    check(await page.locator('#steps li').count() > 8, 'the timeline has the steps');
    check(await page.locator('#media .medium').count() > 0, 'the media appeared without a reload');
    await sound(page, 'job done');
    await shot(page, 'job-done-light');

    // The next installation of this server fails: what differs from the one that succeeded.
    await page.goto(url + '/ui/jobs/new?server=UI-0001');
    await text.fill(recipe.replace('ubuntu-rootfs:22.04', 'ubuntu-rootfs:22.05'));
    await page.getByRole('button', { name: 'Create the job' }).click();
    await page.locator('h1 .state.failed').waitFor({ timeout: 90000 });
    const against = await page.locator('#against').innerText();
    check(against.includes('22.04') && against.includes('22.05'), `the image differs from that of the last success: ${against}`);
    check(await page.locator('#against del').count() === 2, `the image and its digest differ, and nothing else: ${against}`);
    await sound(page, 'a failed job beside the last success');
    await shot(page, 'job-against-light');

    // A failure explained, retried.
    await page.goto(url + '/ui/');
    await page.locator('#needs li', { hasText: 'bootloader-linux.service' }).locator('h3 a').first().click();
    await page.getByText('Why it failed').waitFor();
    check((await page.locator('#why').innerText()).includes('bootloader-linux.service'), 'the failure names its unit');
    await sound(page, 'job failed');
    await page.getByRole('link', { name: 'Retry…' }).click();
    await sound(page, 'retry?');
    const failed = page.url();
    await page.getByRole('button', { name: 'Retry' }).click();
    await page.getByText('This is the new job').waitFor();
    check(page.url() !== failed, 'the page shows the new job');
    await page.locator('h1 .state.failed, h1 .state.done').waitFor({ timeout: 90000 });
    // A page that is seen again resumes its stream after the last event that it received, and not at the event of its first reading.
    const after = place => Number(new URL(place, url).searchParams.get('after'));
    const streamFrom = after(await page.evaluate(() => document.body.dataset.stream));
    const resumed = page.waitForRequest(request => request.url().includes('/events?'));
    await page.evaluate(() => {
      for (const hidden of [true, false]) {
        Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event('visibilitychange'));
      }
      delete document.hidden;
    });
    const resumedAt = after((await resumed).url());
    check(resumedAt > streamFrom, `the stream is resumed after event ${resumedAt}, begun after ${streamFrom}`);

    // Cancel one: the maintenance of its server keeps it in the queue.
    await page.goto(url + '/ui/servers/UI-0001');
    await page.getByRole('link', { name: 'Maintenance…' }).click();
    await page.getByLabel('Reason').fill('<b>rack</b> is "moved"');
    await page.getByRole('button', { name: 'Begin maintenance' }).click();
    await page.getByText('No job starts on this server').waitFor();
    check((await page.locator('main').innerText()).includes('<b>rack</b> is "moved"'), 'a text is shown as it was written');
    await page.getByRole('link', { name: 'New job' }).click();
    await page.getByRole('button', { name: 'Create the job' }).click();
    await page.getByText('maintenance', { exact: false }).first().waitFor();
    check((await page.locator('#media').innerText()).includes('No image is served for this job yet'), 'the place of the media is there before them');
    // What a queued job waits for changes without an event of the job, so its page is read again.
    await page.locator('.live[data-state=live]').waitFor();
    const reread = page.waitForRequest(request => request.url() === page.url() && request.resourceType() === 'fetch', { timeout: 25000 });
    check(await reread.then(() => true, () => false), 'the page of a queued job is read again without an event');
    await page.getByRole('link', { name: 'Cancel…' }).click();
    await sound(page, 'cancel?');
    await page.getByLabel('Reason').fill('a test');
    await page.getByRole('button', { name: 'Cancel the job' }).click();
    await page.getByText('The cancel is stored').waitFor();
    await until('the end of the cancelled job', async () => (await page.locator('h1 .state').innerText()).includes('Cancelled'));
    await sound(page, 'job cancelled');

    // Import servers: a preview with a result for each row, then the import.
    await page.goto(url + '/ui/servers');
    await page.getByRole('link', { name: 'Import…' }).click();
    await sound(page, 'import');
    await page.getByLabel('A file').setInputFiles({ name: 'servers.csv', mimeType: 'text/csv', buffer: Buffer.from('Serial Number;IP;label:rack\r\nIMP-0001;127.0.0.1;n05\r\nIMP-0002;127.0.0.1;n05\r\nnot a serial!;127.0.0.1;n05\r\n') });
    await page.getByLabel('User of the BMCs').fill('admin');
    await page.getByLabel('Password of the BMCs').fill('a-password-of-the-test');
    await page.getByLabel('Labels of every row').fill('site=north');
    await page.getByRole('button', { name: 'Preview' }).click();
    await page.getByRole('heading', { name: 'Import 2 servers?' }).waitFor();
    check(!(await page.content()).includes('a-password-of-the-test'), 'the preview has no password');
    check(await page.locator('tbody .state.failed').count() === 1, 'the row that cannot be registered says why');
    await sound(page, 'import preview');
    await shot(page, 'import-light');
    await page.getByRole('button', { name: 'Register 2 servers' }).click();
    await page.getByRole('heading', { name: 'Imported' }).waitFor();
    await sound(page, 'imported');

    // One server: changed after a preview of what differs, then deleted. By the keyboard alone.
    await page.goto(url + '/ui/servers/IMP-0002');
    await page.getByRole('link', { name: 'Change…' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Change IMP-0002' }).waitFor();
    await sound(page, 'change a server');
    await page.getByLabel('BMC address').fill('http://127.0.0.1:1');
    await page.getByLabel('BMC address').press('Enter');
    await page.locator('#errs').waitFor();
    check((await page.locator('#errs').innerText()).includes('BMC password'), 'another address needs the password');
    problems.splice(0, problems.length, ...problems.filter(text => !/status of 400/.test(text)));
    await sound(page, 'change refused');
    await page.goto(url + '/ui/servers/IMP-0002/edit');
    await page.getByLabel('Labels, one on each line').fill('site=north\nrack=n06');
    await page.getByRole('button', { name: 'Preview' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Change IMP-0002?' }).waitFor();
    check((await page.locator('#changes').innerText()).includes('n06'), 'the preview shows what changes');
    check(await page.locator('#changes tbody tr').count() === 1, 'and nothing else');
    await sound(page, 'change a server?');
    await shot(page, 'server-change-light');
    await page.getByRole('button', { name: 'Change the server' }).click();
    await page.getByText('The server was changed').waitFor();
    await page.getByRole('link', { name: 'Delete…' }).click();
    await sound(page, 'delete a server?');
    await page.getByRole('button', { name: 'Delete the server' }).click();
    await page.getByText('The server was deleted').waitFor();

    // A batch: the preview, its failure with its cause, the retry of that cause.
    await page.goto(url + '/ui/batches/new');
    await page.getByLabel('Or serial numbers').fill(demoServers.join('\n'));
    await page.getByLabel('Stop after').fill('3');
    await page.getByRole('button', { name: 'Preview' }).click();
    await page.getByRole('button', { name: `Create ${demoServers.length} jobs` }).waitFor();
    await sound(page, 'batch preview');
    await page.getByRole('button', { name: `Create ${demoServers.length} jobs` }).click();
    await page.getByText('The batch is stored').waitFor();
    const batch = new URL(page.url()).pathname;
    await page.locator('#causes .needs li').waitFor({ timeout: 90000 });
    check((await page.locator('#causes').innerText()).includes('bootloader-linux.service'), 'the cause names its unit');
    await sound(page, 'batch');
    await shot(page, 'batch-light');
    await page.getByRole('link', { name: /^Retry these 1:/ }).click();
    await sound(page, 'retry the batch?');
    await page.getByRole('button', { name: 'Retry 1 failed job' }).click();
    await page.getByText('This is the new batch').waitFor();
    check(new URL(page.url()).pathname !== batch, 'the page shows the new batch');
    await sound(page, 'batch of retries');

    // Many jobs at once: a question with their number.
    await page.goto(url + '/ui/jobs?q=outcome%3Afailed');
    await page.getByRole('link', { name: 'Retry all…' }).click();
    await page.getByRole('heading', { name: /^Retry \d+ jobs?\?/ }).waitFor();
    await sound(page, 'retry all?');

    // A firmware set, the inventory of a server, and the plan of an installation.
    const api = async (method, path, body, type = 'application/json') => {
      const response = await fetch(path.startsWith('http') ? path : url + path, { method, headers: { authorization: `Bearer ${token}`, ...(body && { 'content-type': type }) }, body });
      if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
      return response;
    };
    await page.goto(url + '/ui/servers/UI-0001');
    await page.getByRole('link', { name: 'End maintenance…' }).click();
    await page.getByRole('button', { name: 'End maintenance' }).click();
    await page.getByText('Jobs start on this server again').waitFor();
    await page.getByRole('link', { name: 'Request…' }).click();
    await sound(page, 'request');
    await page.getByRole('button', { name: 'Preview' }).click();
    await page.getByRole('button', { name: 'Read the inventory' }).click();
    await page.locator('h1 .state.done').waitFor({ timeout: 60000 });
    const { system } = (await (await api('GET', '/api/v1/servers/UI-0001/inventory')).json()).out_of_band;
    const vendor = system.manufacturer.toLowerCase().split(/[^a-z0-9]+/).filter(Boolean).join('-');
    const image = randomBytes(100000), sha256 = createHash('sha256').update(image).digest('hex');
    const begun = await api('POST', `/v2/firmware/${vendor}/bios/blobs/uploads/`);
    const upload = new URL(begun.headers.get('location'), url);
    upload.searchParams.set('digest', 'sha256:' + sha256);
    await api('PUT', upload.href, image, 'application/octet-stream');
    const about = { vendor: system.manufacturer, models: [system.model], component: 'bios', version: '99.1', filename: 'bios_99.1.bin', sha256, size: image.length };
    const { digest } = await (await api('POST', '/api/v1/firmware', JSON.stringify(about))).json();
    await api('POST', '/api/v1/firmware-sets', JSON.stringify({ name: 'spring', labels: { vendor }, files: [digest] }));
    await page.goto(url + '/ui/servers/UI-0001');
    await sound(page, 'server with conditions');
    await page.getByRole('link', { name: 'Request…' }).click();
    await page.getByLabel('What').selectOption('firmwareInstall');
    await page.getByLabel('Firmware set').selectOption('spring');
    await page.getByRole('button', { name: 'Preview' }).click();
    await page.getByRole('heading', { name: /The plan/ }).waitFor();
    check((await page.locator('#plan').innerText()).includes('99.1'), 'the plan shows the version of the file');
    await sound(page, 'firmware plan');
    await shot(page, 'firmware-plan-light');

    // Boot and task images: of the server whose job has ended, and the filter beside its fields.
    await page.goto(url + '/ui/registry');
    await page.getByRole('link', { name: 'Boot and task images' }).first().click();
    await page.getByRole('heading', { name: 'Served now' }).waitFor();
    await sound(page, 'images');
    await page.getByLabel('Image', { exact: true }).fill('boot');
    await page.getByLabel('Image', { exact: true }).press('Enter');
    await page.waitForURL(/image=boot/);
    const images = await page.locator('#ended').innerText();
    check(images.includes('Boot image') && !images.includes('Task image'), `only boot images: ${images.slice(0, 200)}`);
    const [field, button] = [await page.getByLabel('Image', { exact: true }).boundingBox(), await page.getByRole('button', { name: 'Filter' }).boundingBox()];
    check(Math.abs(field.y + field.height - button.y - button.height) < 2, 'the Filter button stands on the line of its fields');
    await sound(page, 'images filtered');
    await shot(page, 'images-light');

    // A tag is deleted, after a question about the manifest that was seen.
    const os = '/v2/os-images/ubuntu-rootfs/manifests/';
    const manifest = await api('GET', os + '22.04');
    await api('PUT', os + 'spare', await manifest.text(), manifest.headers.get('content-type'));
    await page.goto(url + '/ui/registry/os-images/ubuntu-rootfs');
    await sound(page, 'repository with two tags');
    await page.getByRole('link', { name: 'Delete the tag spare' }).click();
    await page.getByRole('heading', { name: 'Delete spare?' }).waitFor();
    await sound(page, 'delete the tag?');
    await page.getByRole('button', { name: 'Delete the tag' }).click();
    await page.getByText('The tag was deleted').waitFor();
    check(!(await page.locator('#tags').innerText()).includes('spare'), 'the tag is gone');

    // A user and a token: made, used, shown once.
    await page.goto(url + '/ui/users');
    await page.getByRole('link', { name: 'New user' }).click();
    await sound(page, 'new user');
    await page.getByLabel('Name').fill('kim');
    await page.getByLabel('Password').fill('correct horse battery');
    await page.getByRole('button', { name: 'Make the user' }).click();
    await page.getByText('The user can log in now').waitFor();
    await page.getByRole('link', { name: 'New token' }).click();
    await page.getByLabel('Name').fill('ci');
    await page.getByRole('button', { name: 'Make the token' }).click();
    const issued = await page.locator('pre [data-copy]').getAttribute('data-copy');
    check((await (await fetch(url + '/api/v1/me', { headers: { authorization: `Bearer ${issued}` } })).json()).name === 'ci', 'the token works');
    await sound(page, 'issued token');
    await page.getByRole('link', { name: 'I have copied it' }).click();
    check(!(await page.content()).includes(issued), 'the token is shown once');
    await sound(page, 'users and tokens');

    // The audit log: filtered, and downloaded as it is filtered.
    await page.goto(url + '/ui/audit');
    await page.getByLabel('Action').fill('user.*');
    await page.getByLabel('Action').press('Enter');
    await page.waitForURL(/action=user/);
    await sound(page, 'audit filtered');
    for (const [button, ending] of [['Download CSV', '.csv'], ['Download JSON lines', '.jsonl']]) {
      const begun = page.waitForEvent('download');
      await page.getByRole('link', { name: button }).click();
      const file = await begun;
      const text = readFileSync(await file.path(), 'utf8');
      check(file.suggestedFilename().endsWith(ending) && text.includes('user/kim') && !text.includes('job.create'), `${button}: ${text.slice(0, 200)}`);
    }

    // A webhook: made, disabled, deleted.
    await page.goto(url + '/ui/webhooks');
    await sound(page, 'no webhooks');
    await page.getByRole('link', { name: 'New webhook' }).click();
    await sound(page, 'new webhook');
    // The controller sends nothing to its own machine, and this test nothing to another one: nothing here damages a backup.
    for (const host of ['127.0.0.1', '192.0.2.1']) {
      await page.getByLabel('URL of the receiver').fill(`http://${host}/a-token-of-the-test`);
      await page.getByLabel('Secret of the signature').fill('a-secret-of-the-test');
      await page.getByLabel('Only these events').fill('backup.damaged');
      await page.getByRole('button', { name: 'Make the webhook' }).click();
      if (host === '127.0.0.1') {
        await page.locator('#errs').waitFor();
        check((await page.locator('#errs').innerText()).includes('FETCH_ALLOW_CIDRS'), 'the refusal says what to do');
        problems.splice(0, problems.length, ...problems.filter(text => !/status of 400/.test(text)));
        await sound(page, 'new webhook refused');
      }
    }
    await page.getByText('The webhook receives every later event').waitFor();
    check(!(await page.content()).includes('a-token-of-the-test'), 'the path of the receiver is in no page');
    await sound(page, 'webhook');
    const hook = new URL(page.url()).pathname;
    await page.getByRole('link', { name: 'Disable…' }).click();
    await sound(page, 'disable the webhook?');
    await page.getByRole('button', { name: 'Disable the webhook' }).click();
    await page.getByText('Nothing is sent until').waitFor();
    await page.getByRole('link', { name: 'Test…' }).click();
    await sound(page, 'test the webhook?');
    await page.getByRole('button', { name: 'Send a test' }).click();
    await page.getByText('Not accepted').waitFor();
    await sound(page, 'webhook tested');

    // Keys and palette.
    await page.goto(url + '/ui/jobs');
    await page.keyboard.press('j');
    check(await page.locator('tr.here').count() === 1, 'j goes to a row');
    await page.keyboard.press('g');
    await page.keyboard.press('s');
    await page.waitForURL('**/ui/servers');
    await page.keyboard.press('Control+k');
    await page.locator('#palette input').fill('UI-00');
    await page.locator('#palette li[data-found] a').first().waitFor();
    await page.keyboard.press('Enter');
    await page.waitForURL('**/ui/servers/UI-0001');

    // Each number of the overview leads to a list that understands its filter.
    await page.goto(url + '/ui/');
    const links = await page.locator('#tally a, #waits a, #flow a, #racks a').evaluateAll(all => all.map(one => one.getAttribute('href')));
    for (const link of links) {
      await page.goto(url + link);
      check(await page.getByRole('alert').count() === 0, `${link} is understood`);
    }

    // A long serial number and a long event, as machines and people write them.
    const long = 'LONG-' + '0123456789'.repeat(4) + '-X1', reason = 'the machine was moved to another place in its row and its cables were changed, and the power feed of the rack as well; ask /redfish/v1/Systems/System.Embedded.1/NetworkAdapters/NIC.Slot.1-1 what it sees';
    await api('POST', '/api/v1/servers', JSON.stringify({ serial: long, bmc_address: 'http://127.0.0.1:1', bmc_username: 'admin', bmc_password: 'a-password-of-the-test', labels: { site: 'north', rack: 'n05' } }));
    await api('POST', `/api/v1/servers/${long}/maintenance`, JSON.stringify({ reason: reason.slice(0, 200) }));

    // Every page once dark and wide, once light and narrow; the most used ones in the other two forms as well.
    const job = failed.replace(/\/retry$/, '').slice(url.length);
    const places = ['/ui/', '/ui/jobs', job, '/ui/servers', '/ui/servers/UI-0001', `/ui/servers/${long}`, '/ui/jobs/new', '/ui/registry', '/ui/events', '/ui/settings', '/ui/users', '/ui/audit', '/ui/audit?action=user.*', '/ui/webhooks', hook, `${hook}/delete`, '/ui/servers/UI-0001/edit', '/ui/servers/UI-0001/delete', '/ui/batches', batch, '/ui/batches/new', '/ui/servers/import', '/ui/registry/os-images/ubuntu-rootfs', '/ui/tags/delete?repository=os-images%2Fubuntu-rootfs&tag=22.04', '/ui/media', '/ui/media?show=ended', '/ui/firmware', '/ui/firmware/sets/spring', '/ui/servers/UI-0001/condition?kind=firmwareInstall', '/ui/users/kim', '/ui/tokens/new', '/ui/account', '/ui/find?q=UI', '/ui/drain'];
    const few = ['/ui/', '/ui/jobs', job, '/ui/servers/UI-0001', batch], tables = ['/ui/events', '/ui/servers', '/ui/media', '/ui/webhooks', '/ui/registry', '/ui/audit', '/ui/account', '/ui/users'];
    const forms = [
      { name: 'desktop-dark', places, viewport: { width: 1440, height: 900 }, colorScheme: 'dark' },
      { name: 'phone-light', places, viewport: { width: 390, height: 844 }, colorScheme: 'light', hasTouch: true },
      { name: 'tablet-light', places: [...few, ...tables], viewport: { width: 1024, height: 768 }, colorScheme: 'light' },
      { name: 'wide-light', places: few, viewport: { width: 2560, height: 1200 }, colorScheme: 'light' },
      { name: 'phone-dark', places: few, viewport: { width: 390, height: 844 }, colorScheme: 'dark', hasTouch: true },
    ];
    const cookies = await context.cookies();
    for (const { name, places, ...form } of forms) {
      const other = await browser.newContext({ ...form, reducedMotion: 'reduce' });
      await other.addCookies(cookies);
      const view = await other.newPage();
      watch(view, url);
      for (const place of places) {
        const response = await view.goto(url + place);
        check(response.ok(), `${place}: ${response.status()}`);
        await sound(view, `${name} ${place}`);
        const part = place.split('?')[0].split('/').filter(Boolean).slice(1).join('-').replace(/[0-9a-f]{8}-[0-9a-f-]{27}/, 'one') || 'overview';
        await shot(view, `${name}-${part}`);
      }
      await other.close();
    }

    // An open page whose login has ended says so also on a phone, and leads by the keyboard to the login and back.
    const left = await browser.newContext({ viewport: { width: 390, height: 844 }, reducedMotion: 'reduce' });
    await left.addCookies(cookies);
    const open = await left.newPage();
    await open.goto(url + '/ui/jobs?q=rack%3D7');
    await open.locator('.live[data-state=live]').waitFor({ state: 'attached' });
    await left.clearCookies();
    await api('POST', '/api/v1/drain');
    const again = open.getByRole('link', { name: 'Log in again' });
    await again.waitFor();
    check((await violations(open)).length === 0, 'the link to the login is accessible');
    check(await open.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), 'the link to the login has its place');
    await again.focus();
    await open.keyboard.press('Enter');
    await open.waitForURL(/\/ui\/login/);
    check(await open.locator('input[name=next]').inputValue() === '/ui/jobs?q=rack%3D7', 'the login leads back to the page');
    await api('DELETE', '/api/v1/drain');
    await left.close();

    // The deliberate defects: a row header that never breaks, an inline script, and an input without a label.
    const unbroken = await browser.newContext({ viewport: { width: 1440, height: 900 } });
    await unbroken.addCookies(cookies);
    const stiff = await unbroken.newPage();
    await stiff.route('**/ui/assets/*.css', async route => {
      const response = await route.fetch();
      await route.fulfill({ response, body: (await response.text()) + 'tbody th { white-space: nowrap !important }' });
    });
    await stiff.goto(url + '/ui/events');
    check((await misplaced(stiff)).length > 0, 'the check cannot fail: a table that is too wide is not reported');
    await unbroken.close();
    const mutated = await browser.newContext();
    await mutated.addCookies(cookies);
    const mutant = await mutated.newPage();
    watch(mutant, url);
    await mutant.route('**/ui/jobs', async route => {
      const response = await route.fetch();
      await route.fulfill({ response, body: (await response.text()).replace('</main>', '<script>document.title = "mutant";</script><input name="mutant"></main>') });
    });
    await mutant.goto(url + '/ui/jobs');
    const noticed = (await violations(mutant)).some(one => one.startsWith('label:'));
    check(noticed, 'the check cannot fail: axe does not report an input without a label');
    check(problems.some(text => /Content Security Policy/.test(text)), 'the check cannot fail: an inline script is not reported');
    check(await mutant.title() !== 'mutant', 'an inline script ran');
    console.log(`the web interface: ${steps()} checks passed`);
  } finally {
    await browser.close();
  }
}

await finish(main);
