// Drives a server with the client that openapi-typescript makes of openapi.yaml:
// the compiler holds the calls to the document, the server to its answers.
import createClient from 'openapi-fetch';
import type { paths } from './api.js';

const env = (globalThis as unknown as { process: { env: Record<string, string>; exit(code: number): never } }).process.env;
const client = createClient<paths>({ baseUrl: env.BASE_URL!, headers: { Authorization: `Bearer ${env.API_KEY}` } });
const must = <T>(value: T | undefined, what: unknown): T => {
  if (value === undefined) throw new Error(JSON.stringify(what));
  return value;
};

const created = await client.POST('/api/v1/agent/runs', {
  params: { header: { 'Idempotency-Key': 'one' } },
  body: { prompt: 'Say hello.', title: 'Hello', metadata: { team: 'web' }, config: { environment_id: 'quick' } },
});
const id: string = must(created.data, created.error).run_id;
let state = '';
while (!['SUCCEEDED', 'FAILED', 'CANCELLED'].includes(state)) {
  const read = await client.GET('/api/v1/agent/runs/{id}', { params: { path: { id } } });
  state = must(read.data, read.error).state;
}
const listed = await client.GET('/api/v1/agent/runs', {
  params: { query: { limit: 1, state: ['SUCCEEDED', 'FAILED'], sort_by: 'created_at', metadata: { team: 'web' } } },
});
if (must(listed.data, listed.error).runs[0]?.run_id !== id) throw new Error('the run is not listed');
const made = await client.POST('/api/v1/agent/schedules', { body: { name: 'Nightly', cron_schedule: '@daily', prompt: 'Tidy up.' } });
const schedule = must(made.data, made.error);
const gone = await client.DELETE('/api/v1/agent/schedules/{id}', { params: { path: { id: schedule.id } } });
if (!must(gone.data, gone.error).success) throw new Error('not deleted');
const refused = await client.GET('/api/v1/agent/runs/{id}', { params: { path: { id: 'run_0000000000001' } } });
if (must(refused.error, refused.data).status !== 404) throw new Error('found');
// What only the newest published SDK asks for.
const factories = await client.GET('/api/v1/factory', { params: { query: { search: '', limit: 1 } } });
const factory = must(factories.data, factories.error).factories[0]!.uid;
const suites = await client.GET('/api/v1/factory/{uid}/benchmarks/suites', { params: { path: { uid: factory } } });
if (must(suites.error, suites.data).status !== 422) throw new Error('suites');
const models = await client.GET('/api/v1/agent/models');
must(models.data, models.error).models.forEach((m) => m.display_name);
const usage = await client.GET('/api/v1/agent/runs/{id}/harness-usage', { params: { path: { id } } });
if (must(usage.data, usage.error).available) throw new Error('a command reports no usage');
const tasks = await client.GET('/api/v1/factory/{uid}/tasks', { params: { path: { uid: factory } } });
const because = must(tasks.error, tasks.data);
if (because.status !== 422 || !because.message.includes('no tasks')) throw new Error(because.message);
console.log(`${state} ${id}`);
