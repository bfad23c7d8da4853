// Drives a server with the published client package as its users do: nothing but
// the base URL and the key is set (OZ_API_BASE_URL, WARP_API_KEY). SDK names the
// module. It prints one line of JSON per step, which TestSDK reads.
import assert from 'node:assert/strict';

const { default: Client } = await import(process.env.SDK ?? 'oz-agent-sdk');
const client = new Client();
const agent = client.agent;
const say = (step, value) => console.log(JSON.stringify({ step, ...value }));
const fails = async (status, call) => {
  const error = await call.then(() => assert.fail('it did not fail'), (e) => e);
  assert.equal(error.status, status, String(error));
  return error;
};

const made = await agent.run({
  prompt: 'Say hello.', title: 'Hello', config: { environment_id: 'quick', name: 'greeting', model_id: 'm1' },
});
assert.equal(made.task_id, made.run_id);
assert.equal(made.state, 'QUEUED');
say('created', { id: made.run_id });

const finished = new Set(['SUCCEEDED', 'FAILED', 'ERROR', 'CANCELLED']);
const poll = async (id) => {
  for (;;) {
    const run = await agent.runs.retrieve(id);
    if (finished.has(run.state)) return run;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};
const run = await poll(made.run_id);
assert.equal(run.state, 'SUCCEEDED', run.status_message);
assert.equal(run.title, 'Hello');
assert.equal(run.prompt, 'Say hello.');
assert.equal(run.agent_config.environment_id, 'quick');
assert.equal(run.creator.type, 'user');
assert.ok(run.session_link.includes(run.run_id));
assert.ok(new Date(run.started_at) >= new Date(run.created_at));
say('finished', { id: run.run_id, state: run.state });

const all = [];
for (let i = 0; i < 5; i++) all.push((await agent.run({ prompt: `Number ${i}.`, config: { environment_id: 'quick' } })).run_id);
await Promise.all(all.map(poll));
const seen = [];
const query = { limit: 2, source: 'API', creator: run.creator.uid, sort_by: 'created_at' };
let page = await agent.runs.list(query);
if (typeof page[Symbol.asyncIterator] === 'function') {
  for await (const item of page) seen.push(item.run_id); // newer packages turn pages by themselves
} else {
  for (;;) {
    for (const item of page.runs) seen.push(item.run_id);
    if (!page.page_info.has_next_page) break;
    page = await agent.runs.list({ ...query, cursor: page.page_info.next_cursor });
  }
}
assert.deepEqual(seen, [...all.reverse(), made.run_id]);
const items = async (query) => {
  const found = await agent.runs.list(query);
  return found.runs ?? found.getPaginatedItems();
};
assert.equal((await items({ name: 'greeting' })).length, 1);
assert.equal((await items({ q: 'number 3' })).length, 1);
assert.equal((await items({ state: ['FAILED', 'ERROR'] })).length, 0);
assert.equal((await items({ created_after: run.created_at, environment_id: 'quick' })).length, 5);
say('listed', { runs: seen.length });

const slow = await agent.run({ prompt: 'Wait.', config: { environment_id: 'slow' } });
while ((await agent.runs.retrieve(slow.run_id)).state === 'QUEUED') await new Promise((resolve) => setTimeout(resolve, 20));
assert.equal(await agent.runs.cancel(slow.run_id), slow.run_id);
const stopped = await poll(slow.run_id);
assert.equal(stopped.state, 'CANCELLED');
assert.match(String(await fails(400, agent.runs.cancel(slow.run_id))), /has finished/);
say('cancelled', { id: slow.run_id });

const schedule = await agent.schedules.create({
  name: 'Every second', cron_schedule: '@every 1s', prompt: 'Tick.', agent_config: { environment_id: 'quick' },
});
assert.equal(schedule.enabled, true);
assert.deepEqual((await agent.schedules.list()).schedules.map((s) => s.id), [schedule.id]);
let ticked = [];
while (ticked.length < 2) {
  await new Promise((resolve) => setTimeout(resolve, 100));
  ticked = await items({ schedule_id: schedule.id, source: 'SCHEDULED_AGENT', limit: 100 });
}
assert.equal(ticked[0].schedule.schedule_name, 'Every second');
assert.equal((await agent.schedules.pause(schedule.id)).enabled, false);
const changed = await agent.schedules.update(schedule.id, { name: 'Daily', cron_schedule: '0 9 * * *', prompt: 'Tick.', enabled: false });
assert.equal(changed.name, 'Daily');
assert.equal((await agent.schedules.resume(schedule.id)).enabled, true);
const read = await agent.schedules.retrieve(schedule.id);
assert.match(read.history.next_run, /T09:00:00Z$/);
assert.ok(read.history.last_ran);
assert.deepEqual(await agent.schedules.delete(schedule.id), { success: true });
await fails(404, agent.schedules.retrieve(schedule.id));
say('scheduled', { id: schedule.id, runs: ticked.length });

assert.match(String(await fails(400, agent.run({ config: { environment_id: 'quick' } }))), /prompt is missing/);
assert.match(String(await fails(400, agent.run({ prompt: 'x', config: { environment_id: 'none' } }))), /no environment/);
await fails(404, agent.runs.retrieve('run_0000000000001'));
await fails(400, agent.run({ prompt: 'x', conversation_id: 'c' }));
await fails(401, new Client({ apiKey: 'thk_wrong' }).agent.runs.list());
assert.deepEqual((await agent.list()).agents, []);
if (agent.listEnvironments) {
  assert.deepEqual((await agent.listEnvironments()).environments.map((e) => e.name).sort(), ['quick', 'slow']);
  await fails(422, agent.runs.submitFollowup(run.run_id, { message: 'More.' }));
  assert.deepEqual((await agent.runs.listHandoffAttachments(run.run_id)).attachments, []);
}
say('refused', {});
