//! The order of locks, outermost first: a thread takes a lock only if its line stands below the
//! lines of all locks that the thread has.
//!
//! Each mutex and each reader-writer lock of the device, and of `adverb-ucma` above it, has a line
//! here, and names the line in its type. Debug builds check the order at every lock that may wait,
//! and panic with both names. They check a call with `try_lock` only for the locks taken after it,
//! as trying never waits. A thread never has two locks of one line at once: never two queue pairs,
//! and never the same lock for reading twice.
//!
//! A line says what the lock guards and what the holder does under it. "Nothing more" means that
//! the holder takes no other lock of this table. A logger may be called under any of them, so a
//! logger must not call the device. The locks of `adverb-link`, `adverb-local` and `adverb-memory`
//! are not in the table. `UdpLink::recv` holds one of them while it calls the device: a socket's
//! `receiving`, which a thread only tries, or waits for with a limit.
adverb_sync::ranks! {
    // What calls of the program begin with.

    /// The slot for the process's connection manager (`adverb_ucma`): held while the connection
    /// manager is made, which makes the node.
    UcmaPlace = "the process's connection manager";
    /// The ids, connections and files of the connection manager: held through each command and
    /// each MAD, which send MADs and open addresses.
    UcmaWorld = "the connection manager's ids";
    /// The connection manager's files by descriptor. Nothing more.
    UcmaFiles = "the connection manager's files";
    /// The slot for the process's node: held while the node is made, and at the end of the process,
    /// when the node sends what waits.
    NodePlace = "the process's node";
    /// Whether a claim of a service listens: held while the service is listed.
    MadClaim = "a claim of a service";
    /// The services that this process listens for. Nothing more.
    MadServices = "the services that are listened for";
    /// Requests that came before anybody listened. One that finds no room is answered under it,
    /// which may open an address.
    MadEarly = "requests that came early";
    /// The state of a work queue: held while its queue pair is modified.
    WorkQueue = "a work queue";
    /// The multicast groups of a queue pair: held while it joins or leaves, which opens addresses.
    Attachments = "a queue pair's multicast groups";
    /// A memory region's range, rights and protection domain: held while the region ends or is
    /// registered anew. Queue pairs send payloads of the region once more meanwhile.
    MemoryRegion = "a memory region";

    // Packets come.

    /// The turn to greet a process: held until the process answers, which is received meanwhile.
    Greeting = "the turn to greet a process";
    /// What receives (`Node::rx`): the buffers of sockets and the rings of peers. All that a packet
    /// leads to happens under it.
    Receiver = "the receiver";
    /// What was given to processes that have not answered a greeting: held while a peer is entered.
    Greeted = "the processes that were greeted";

    // A queue pair and what its engine needs.

    /// A queue pair: the engine and how far its packets have come. `engine::Qp` is called under it,
    /// and no SRQ's or CQ's lock is held then.
    QueuePair = "a queue pair";
    /// What queue pairs that have ended left for other processes. Nothing more.
    Leaving = "what ended queue pairs left to send";
    /// The key and the pages of a fast region: held while the key table stages or frees them.
    FastRegion = "a fast memory region";
    /// The ring to a peer. A queue pair tries it, also with the keys, and never waits. The lock
    /// waits only where a ring is replaced or searched. A record that binds a key writes the key
    /// table under it.
    Lane = "the ring to a peer";
    /// The key table. Readers copy payloads under it, so that a deregistration waits for them.
    /// Short one-sided requests copy behind a mark instead (`host::direct`).
    Keys = "the keys";
    /// Payloads that records in a peer's ring point at. Nothing more.
    Referred = "the payloads that a peer has to fetch";
    /// The turn to change what peers see of queue pairs and keys. Nothing more.
    Publishing = "the turn to publish";
    /// The shared receive queues by number: held while one is made. Nothing more.
    SharedQueues = "the shared receive queues by number";
    /// The queue pairs that take from a shared receive queue. Nothing more.
    Takers = "the takers of a shared receive queue";
    /// A shared receive queue. Operations on tags are completed under it.
    SharedReceives = "a shared receive queue";

    // Completions and events.

    /// A thread that destroys an object waits under it for the acknowledgements of events, and says
    /// what it waits for.
    Acknowledgements = "the acknowledgements of an object's events";
    /// Completions that a hunt holds: held while they are added to their queue.
    HuntHeld = "the completions that a hunt holds";
    /// A completion queue. Its event is queued and its timer entered under it; wakers are called,
    /// which only note their task. What takes completions out (`Cq::poll`) calls nothing of the
    /// device, and drops nothing of it.
    CompletionQueue = "a completion queue";
    /// Events with a descriptor: of a channel, and the asynchronous ones. Nothing more.
    Events = "a list of events";
    /// Tasks that wait for an event. Nothing more: a waker is called when the lock is free.
    Wakers = "the tasks that wait for an event";
    /// The queues of a completion channel. Nothing more.
    ChannelQueues = "a channel's completion queues";
    /// Threads that wait for an event of a completion channel. Nothing more.
    Getting = "the threads that wait at a channel";

    // Peers on this host. Nothing of them is held while a ring is locked or a packet handled.

    /// How many threads sleep until a bell rings: held while the bells are looked at.
    Sleepers = "the threads that wait for a bell";
    /// Peers that were left and whose processes live on. One that has ended is buried under it.
    Departed = "the peers that were left";
    /// The peers: held while one enters or leaves, and while the receiver takes over their rings.
    Peers = "the peers";
    /// The peers by slot. Nothing more.
    PeersBySlot = "the peers by slot";
    /// The rings of a peer that the receiver has not taken over yet. Nothing more.
    PeerRings = "the rings that a peer writes to";
    /// The bells of a peer. Nothing more.
    PeerLinks = "a peer's bells";
    /// The end of a peer that was left. Nothing more.
    PeerEnd = "a peer's end";
    /// Memory of a peer that is mapped here. Nothing more.
    PeerMemory = "a peer's memory";
    /// The queue pairs that were connected to a peer. Nothing more.
    PeerQueuePairs = "the queue pairs connected to a peer";

    // Tables: taken under any of the above, and nothing is called under them.

    /// Memory that is registered and lies in the process's file.
    Reached = "the memory that peers may map";
    /// Processes that are not greeted for a while.
    Refused = "the processes that did not answer";
    /// The queue pairs by number.
    Numbers = "the queue pairs by number";
    /// Queue pairs to be pumped at the next poll.
    Pending = "the queue pairs that wait for a poll";
    /// Queue pairs with packets that wait for a receive.
    Stashed = "the queue pairs whose packets wait for a receive";
    /// The multicast groups of the process, with the queue pairs attached.
    Groups = "the multicast groups";
    /// The interfaces with raw packet queue pairs: held while one is opened.
    FramePorts = "the interfaces with raw packet queue pairs";
    /// The flows of an interface.
    Flows = "the flows of an interface";
    /// The key of a memory window.
    MemoryWindow = "a memory window";
    /// The handler of MADs. The handler is called when the lock is free.
    MadHandler = "the handler of MADs";
    /// The addresses opened so far.
    Addresses = "the open addresses";
    /// The interfaces that are followed: held while each port looks at its interface.
    KnownPorts = "the ports that are followed";
    /// The state of a port.
    Port = "a port";
    /// Contexts that are told of changes of ports. They are told when the lock is free.
    Followers = "the followers of ports";
    /// MADs that wait for the background thread.
    MadInbox = "the MADs that came";
    /// Processes that ended, for the handler of MADs.
    MadGone = "the processes that ended";
    /// When a MAD was given to all processes last.
    MadSpread = "the pace of MADs to all";
    /// Completion queues with timers, by number.
    TimedQueues = "the completion queues with timers";
    /// Queue pairs whose one-sided requests a fault delays.
    Delayed = "the queue pairs whose requests are delayed";
    /// Deadlines.
    Timers = "the timers";
    /// What queue pairs counted that have ended.
    Gone = "the counters of ended queue pairs";
    /// Why peers are not reached through shared memory, and how often.
    Private = "the counters of private memory";

    /// Pipes made in advance. It is only tried. Nothing more.
    SparePipes = "the pipes made in advance";

    // A hunt (`adverb run --hunt`), which is met in calls of the program and in each completion.

    /// What was staged on queue pairs that are hunted.
    HuntLedgers = "the ledgers of a hunt";
    /// Posts that were refused.
    HuntRefused = "the posts that a hunt refused";
    /// The schedule.
    HuntSchedule = "the schedule of a hunt";
    /// The points that were met: held while a new one is noted.
    HuntPoints = "the points of a hunt";
    /// What a hunted part has met.
    HuntPart = "the hunted part";
    /// The hunted completion queues.
    HuntQueues = "the hunted completion queues";
    /// The process that has a thread for its hunt.
    HuntThread = "the thread of a hunt";
}
