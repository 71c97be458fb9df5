// The BullMQ side of the benchmark. The submitter reads lines {"batch","k"} and answers with lines {"batch","results"}.
// It forks itself once: the worker.
import { fork } from 'node:child_process'
import { createInterface } from 'node:readline'
import { Queue, Worker, QueueEvents, FlowProducer } from 'bullmq'

const [host, port] = process.env.BENCH_REDIS.split(':')
const connection = { host, port: Number(port), maxRetriesPerRequest: null }
const mode = process.env.BENCH_MODE
const workers = Number(process.env.BENCH_WORKERS)
const args = 'a'.repeat(Number(process.env.BENCH_PAYLOAD))
const queue = process.env.BENCH_QUEUE ?? `bench-${Date.now()}`
const keep = { removeOnComplete: { age: 600 }, removeOnFail: { age: 600 }, attempts: 3 }

if (process.env.BENCH_ROLE === 'worker') {
  const w = new Worker(queue, async (job) => {
    return `ok:${job.data.batch}:${job.data.index}:${process.env.BENCH_FILLER}`
  }, { connection, concurrency: workers })
  const parents = new Worker(`${queue}-parent`, async (job) => {
    const values = Object.values(await job.getChildrenValues())
    const ordered = []
    for (const v of values) ordered[Number(v.split(':')[2])] = v
    return ordered
  }, { connection, concurrency: workers })
  await Promise.all([w.waitUntilReady(), parents.waitUntilReady()])
  process.on('disconnect', async () => {
    await Promise.all([w.close(true), parents.close(true)])
    process.exit(0)
  })
  process.send('ready')
} else {
  const env = { ...process.env, BENCH_ROLE: 'worker', BENCH_QUEUE: queue }
  const child = fork(new URL(import.meta.url).pathname, [], { env })
  await new Promise((ok) => child.once('message', ok))
  const q = new Queue(queue, { connection })
  const flows = new FlowProducer({ connection })
  const on = mode === 'flow' ? `${queue}-parent` : queue
  // One listener for all jobs: one for each (job.waitUntilFinished) costs one more round trip a job.
  const events = new QueueEvents(on, { connection })
  await events.waitUntilReady()
  const waiting = new Map()
  const early = new Map()
  events.on('completed', ({ jobId, returnvalue }) => {
    const f = waiting.get(jobId)
    if (f) { waiting.delete(jobId); f(returnvalue) } else early.set(jobId, returnvalue)
  })
  const finished = (id) => new Promise((ok) => {
    if (early.has(id)) { ok(early.get(id)); early.delete(id) } else waiting.set(id, ok)
  })
  const encoded = (v) => typeof v === 'string' && (v.startsWith('"') || v.startsWith('['))
  const value = (v) => (encoded(v) ? JSON.parse(v) : v)
  const call = (batch, index) => ({ name: 'noop', data: { batch, index, args }, opts: keep })
  const calls = (batch, k) => Array.from({ length: k }, (_, index) => call(batch, index))

  const run = {
    async bulk({ batch, k }) {
      const jobs = await q.addBulk(calls(batch, k))
      return (await Promise.all(jobs.map((j) => finished(j.id)))).map(value)
    },
    async flow({ batch, k }) {
      const f = await flows.add({
        name: 'batch', queueName: `${queue}-parent`, data: { batch }, opts: keep,
        children: calls(batch, k).map((c) => ({ ...c, queueName: queue })),
      })
      return value(await finished(f.job.id))
    },
  }[mode]

  console.log(JSON.stringify({ ready: true }))

  const lines = createInterface({ input: process.stdin })
  lines.on('line', async (l) => {
    const b = JSON.parse(l)
    try {
      console.log(JSON.stringify({ batch: b.batch, results: await run(b) }))
    } catch (e) {
      console.log(JSON.stringify({ batch: b.batch, err: String(e) }))
    }
  })
  lines.on('close', async () => {
    await Promise.allSettled([q.obliterate({ force: true })])
    await Promise.allSettled([q.close(), flows.close(), events.close()])
    child.disconnect()
    child.once('exit', () => process.exit(0))
  })
}
