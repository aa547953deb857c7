// The operations of a scheduler in JavaScript, as one would write them today: slots on an Int32 SharedArrayBuffer or in
// one thread, seven priorities, callbacks with a value, a queue. `node peers.mjs ROW` says "ready" when it is warm; then
// for each line with a count it does that many operations and answers with the nanoseconds that they took.
//
// It is written to be fast: one class for each kind of state, so that no call site sees two, and a queue that
// allocates nothing once it has grown.
import { createInterface } from 'node:readline'

const TIERS = 7
const RUNNING = 0
const WAITERS = 1

// Entries lie in pairs, function and value, in one array whose size is a power of two.
class Queue {
  constructor() {
    this.items = new Array(2048).fill(undefined)
    this.mask = 2047
    this.head = 0
    this.tail = 0
  }
  push(fn, value) {
    const tail = this.tail
    const items = this.items
    items[tail] = fn
    items[tail + 1] = value
    this.tail = (tail + 2) & this.mask
    if (this.tail === this.head) this.grow()
  }
  grow() {
    const { items, head } = this
    const size = items.length
    this.items = items.slice(head).concat(items.slice(0, head), new Array(size).fill(undefined))
    this.mask = size * 2 - 1
    this.head = 0
    this.tail = size
  }
}

// What both kinds have: the queues, and a bit for each that is not empty, so that an empty one costs one test.
class Waiting {
  constructor() {
    this.running = 0
    this.busy = 0
    this.draining = false
    this.queues = Array.from({ length: TIERS }, () => new Queue())
  }
  wait(fn, tier, value) {
    this.queues[tier].push(fn, value)
    this.busy |= 1 << tier
  }
}

class LocalScheduler extends Waiting {
  constructor(max = Infinity) {
    super()
    this.max = max
  }
  tryAcquire(priority = 0) {
    if (this.busy !== 0 && (this.busy >> (priority + 3)) & 1) return false
    if (this.running >= this.max) return false
    this.running++
    return true
  }
  acquire(fn, priority = 0, value) {
    if (this.running >= this.max || (this.busy >> (priority + 3)) & 1) {
      this.wait(fn, priority + 3, value)
      return false
    }
    this.running++
    fn(value)
    return true
  }
  release() {
    this.running--
    if (this.busy !== 0 && !this.draining) this.drain()
  }
  drain() {
    this.draining = true
    while (this.busy !== 0 && this.running < this.max) {
      const tier = 31 - Math.clz32(this.busy)
      const queue = this.queues[tier]
      const head = queue.head
      const items = queue.items
      const fn = items[head]
      const value = items[head + 1]
      items[head] = undefined
      items[head + 1] = undefined
      queue.head = (head + 2) & queue.mask
      if (queue.head === queue.tail) this.busy &= ~(1 << tier)
      this.running++
      fn(value)
    }
    this.draining = false
  }
  run(fn, priority = 0) {
    if (this.tryAcquire(priority)) return this.started(fn)
    return new Promise((resolve) => this.acquire(() => resolve(this.started(fn)), priority))
  }
  // Under its slot, which goes back whatever way `fn` ends.
  started(fn) {
    let value
    try {
      value = fn()
    } catch (error) {
      this.release()
      return Promise.reject(error)
    }
    if (typeof value?.then !== 'function') {
      this.release()
      return Promise.resolve(value)
    }
    return value.then(
      (result) => { this.release(); return result },
      (error) => { this.release(); throw error },
    )
  }
}

// A ring that takes one item at a time and grows.
class Ring {
  constructor() {
    this.items = new Array(1024)
    this.first = 0
    this.length = 0
  }
  put(item) {
    if (this.length === this.items.length) {
      const { items, first } = this
      this.items = items.slice(first).concat(items.slice(0, first), new Array(items.length))
      this.first = 0
    }
    this.items[(this.first + this.length) & (this.items.length - 1)] = item
    this.length++
  }
  take() {
    const at = this.first
    const item = this.items[at]
    this.items[at] = undefined
    this.first = (at + 1) & (this.items.length - 1)
    this.length--
    return item
  }
}

// The same with plain parts: a ring for each priority, into which a function and its value go one after the other, and a
// look from the highest for who is next.
class PlainScheduler {
  constructor(max = Infinity) {
    this.max = max
    this.running = 0
    this.waiting = 0
    this.draining = false
    this.rings = Array.from({ length: TIERS }, () => new Ring())
  }
  tryAcquire(priority = 0) {
    if (this.rings[priority + 3].length !== 0 || this.running >= this.max) return false
    this.running++
    return true
  }
  acquire(fn, priority = 0, value) {
    if (this.tryAcquire(priority)) {
      fn(value)
      return true
    }
    const ring = this.rings[priority + 3]
    ring.put(fn)
    ring.put(value)
    this.waiting++
    return false
  }
  release() {
    this.running--
    if (this.waiting !== 0 && !this.draining) this.drain()
  }
  drain() {
    this.draining = true
    while (this.waiting !== 0 && this.running < this.max) {
      let tier = TIERS - 1
      while (this.rings[tier].length === 0) tier--
      const ring = this.rings[tier]
      const fn = ring.take()
      const value = ring.take()
      this.waiting--
      this.running++
      fn(value)
    }
    this.draining = false
  }
}

// The limit is soft: looked at, then added to.
class SharedScheduler extends Waiting {
  constructor(words, max) {
    super()
    this.words = words
    this.max = max
  }
  acquire(fn, priority = 0, value) {
    if ((this.busy >> (priority + 3)) & 1 || Atomics.load(this.words, RUNNING) >= this.max) {
      this.wait(fn, priority + 3, value)
      return false
    }
    Atomics.add(this.words, RUNNING, 1)
    fn(value)
    return true
  }
  release() {
    Atomics.sub(this.words, RUNNING, 1)
    if (Atomics.load(this.words, WAITERS) > 0) Atomics.notify(this.words, RUNNING, 1)
    if (this.busy !== 0) throw new Error('nobody waits in this measure')
  }
}

const nothing = () => {}
const shared = () => new SharedScheduler(new Int32Array(new SharedArrayBuffer(64)), 2 ** 20)

// A batch of callbacks behind one slot: queued, then each releases to the next.
function drain(scheduler) {
  const step = () => scheduler.release()
  return (count) => {
    scheduler.acquire(nothing)
    for (let i = 0; i < count; i++) scheduler.acquire(step)
    scheduler.release()
  }
}

const rows = {
  unlimited() {
    const scheduler = new LocalScheduler()
    return (count) => { for (let i = 0; i < count; i++) { scheduler.acquire(nothing); scheduler.release() } }
  },
  local() {
    const scheduler = new LocalScheduler(2 ** 31 - 1)
    return (count) => { for (let i = 0; i < count; i++) { scheduler.tryAcquire(); scheduler.release() } }
  },
  shared() {
    const scheduler = shared()
    return (count) => { for (let i = 0; i < count; i++) { scheduler.acquire(nothing); scheduler.release() } }
  },
  drain: () => drain(new LocalScheduler(1)),
  plain_drain: () => drain(new PlainScheduler(1)),
  run() {
    const scheduler = new LocalScheduler(64)
    return async (count) => { for (let i = 0; i < count; i++) await scheduler.run(nothing) }
  },
}

const [name, warm = '2000000'] = process.argv.slice(2)
if (!Object.hasOwn(rows, name)) {
  console.error(`peers.mjs: no row ${name}: ${Object.keys(rows).join(', ')}`)
  process.exit(64)
}
const operate = rows[name]()
for (let round = 0; round < 4; round++) await operate(Number(warm) >> 2)
console.log('ready')
for await (const line of createInterface({ input: process.stdin })) {
  const count = Number(line)
  const begun = process.hrtime.bigint()
  await operate(count)
  console.log(String(process.hrtime.bigint() - begun))
}
