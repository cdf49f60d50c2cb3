/*
 * The protocol of internal/sidecar/engine: two owners, two addresses, one pod, a plugin
 * that may act late, and a node on which any process can stop at any step.
 * docs/design/model.md explains the model and maps its steps to functions.
 *
 * Configuration:
 *   STORE    NODE (a reboot may lose its last writes) or REMOTE
 *   REPEAT   what a second ADD of one container ID does: REFUSED, SAME or ANOTHER
 *   VERIFY   how a held attachment is verified: LOOKUP, CHECK (presence) or NOTHING
 *   QUEUED   1 if a DEL that succeeded may act at any later time
 * Bounds:
 *   CALLS    requests of the two owners; PODS: ADDs of the pod
 *   FAULTS   disturbances of any kind, in any combination
 *   G        generations of a container ID; LATE: operations in flight behind a process
 * A flag NO_... removes one rule, a flag DROP_... drops one assumption.
 */

#define NODE    0
#define REMOTE  1

#define REFUSED 0
#define SAME    1
#define ANOTHER 2

#define LOOKUP  0
#define CHECK   1
#define NOTHING 2

#ifndef STORE
#define STORE NODE
#endif
#ifndef REPEAT
#define REPEAT REFUSED
#endif
#ifndef VERIFY
#define VERIFY LOOKUP
#endif
#ifndef QUEUED
#define QUEUED 0
#endif
#ifndef CALLS
#define CALLS 4
#endif
#ifndef PODS
#define PODS 1
#endif
#ifndef FAULTS
#define FAULTS 3
#endif
#ifndef G
#define G 1
#endif

/* Events are printed when a counterexample is replayed. */
#ifdef TRACE
#define SAY(text) printf(text)
#define SAY1(text, a) printf(text, a)
#define SAY2(text, a, b) printf(text, a, b)
#else
#define SAY(text) skip
#define SAY1(text, a) skip
#define SAY2(text, a, b) skip
#endif

/* --- state ------------------------------------------------------------------ */

/* States of a record. */
#define NONE      0
#define ADDING    1
#define HELD      2
#define RELEASING 3
#define TOMBSTONE 4

/* A record. Addresses are 1 and 2, so that a number is also a set of them. */
typedef Record {
	unsigned state : 3;
	unsigned gen : 2;      /* generation of the ID of the last ADD */
	unsigned addr : 2;     /* what that ADD returned */
	unsigned claimed : 1;  /* the owner was told addr and has not released it */
	unsigned ctx : 4;      /* generations that still need a DEL */
	unsigned adds : 4;     /* generations with a deadline for an ADD (addActsUntil) */
	unsigned dels : 4;     /* generations with a deadline for a DEL (delSettlesAt) */
	unsigned boot : 1;     /* obtained or proved in this boot */
	unsigned far : 1       /* deadlines of a clock that has been set back since */
};

Record mem[2];     /* what the engine believes */
Record disk[2];    /* the journal */
Record next;       /* the record that a step writes; 0 between steps */

/* The plugin's store: the addresses that each container ID holds, two bits each. */
#define ID(o, g)  ((o)*G + (g))
#define POD       (2*G)
unsigned store : 18;
#define HOLDS(n)    ((store >> (2*(n))) & 3)
#define PUT(n, set) store = (store & ~(3 << (2*(n)))) | ((set) << (2*(n)))

/* Operations whose process has ended or was left behind by a crash: they act at
 * any time until their deadline, or never. */
#define ADD  1
#define DEL  2
#define QDEL 3     /* a DEL that succeeded and is queued */
typedef Late {
	unsigned op : 2;
	unsigned id : 3;
	unsigned want : 2;
	unsigned live : 1;     /* the process of a previous run, which holds the lock of its ID */
	unsigned done : 1      /* has acted, but its deadline has not passed */
};
Late late[2];

/* The engine, per owner; lost with the process. */
#define IDLE    0
#define RUNDEL  1
#define RUNADD  2
#define RECORD  3
#define REPLY   4
#define UNDO    5
#define FINISH  6
#define AGAIN   7
#define ACQUIRE 0
#define REVERT  1
#define RETURN  2
#define TIDY    3
typedef Task {
	unsigned pc : 3;
	unsigned goal : 2;     /* what the DELs are for */
	unsigned todel : 4;    /* generations that get a DEL now */
	unsigned gone : 4;     /* generations whose DEL has succeeded in this release */
	unsigned want : 2;     /* the address that the ADD asks for */
	unsigned got : 2;      /* the address that it returned */
	unsigned client : 1;   /* a client waits for the answer */
	unsigned failed : 1;   /* a DEL of this operation did not succeed */
	unsigned dirty : 1;    /* the disk may hold something else than memory */
	unsigned todo : 1;     /* the background has work */
	unsigned waits : 1      /* lost, and nothing is left to be undone */
};
Task task[2];

/* Clients. */
typedef Owner {
	unsigned has : 2;      /* the address that it was told and uses */
	unsigned asked : 2;    /* an address whose release waits for its turn */
	unsigned forgot : 1;   /* a ghost: the journal was lost while it used its address */
	unsigned fresh : 3     /* a ghost: random IDs used so far, so that none repeats */
};
Owner owner[2];
unsigned podHas : 2;

/* Bounds. */
unsigned calls : 3 = CALLS;
unsigned pods : 2 = PODS;
unsigned faults : 3 = FAULTS;

/* Who held address 1 and address 2 in an older copy of the store: ID + 1, two bits each. */
unsigned older : 4;
#define OLDER(a) ((older >> (2*(a) - 2)) & 3)

/* Ghosts of documented cases. */
unsigned excused : 8;  /* IDs whose leases a lost journal forgot */
unsigned extra : 8;    /* IDs that may hold one address more than recorded until their DEL */

/* What is proved. */
bit twoHolders;
bit leaked;
bit stuck;

/* --- expressions ------------------------------------------------------------ */

#define BIT(n)   (1 << (n))
#define TOP(set) (((set) & 8) -> 3 : (((set) & 4) -> 2 : (((set) & 2) -> 1 : 0)))

#if G == 1
#define TAKEN (HOLDS(0) | HOLDS(1) | HOLDS(2))
#elif G == 2
#define TAKEN (HOLDS(0) | HOLDS(1) | HOLDS(2) | HOLDS(3) | HOLDS(4))
#elif G == 3
#define TAKEN (HOLDS(0) | HOLDS(1) | HOLDS(2) | HOLDS(3) | HOLDS(4) | HOLDS(5) | HOLDS(6))
#else
#define TAKEN (HOLDS(0) | HOLDS(1) | HOLDS(2) | HOLDS(3) | HOLDS(4) | HOLDS(5) | HOLDS(6) | HOLDS(7) | HOLDS(8))
#endif

/* The first address ever is 1: nothing tells the two apart before. */
#define VIRGIN (TAKEN == 0 && disk[0].addr == 0 && disk[1].addr == 0 && mem[0].addr == 0 && mem[1].addr == 0 && \
	owner[0].has == 0 && owner[1].has == 0 && owner[0].asked == 0 && owner[1].asked == 0 && older == 0)
#define FREE(a) ((TAKEN & (a)) == 0 && ((a) == 1 || !VIRGIN))

#define OPEN(i, kind, n) (late[i].op == kind && late[i].id == (n))
#define LOCKED(n) (late[0].op && late[0].live && late[0].id == (n) || late[1].op && late[1].live && late[1].id == (n))

/* Deadlines. One passes only when its operation can no longer act: that the
 * profile's seconds are right is an assumption. */
#if STORE == NODE
#define ADDOPEN(o, g) 0
#define DELOPEN(o, g) 0
#define ADDSOPEN(o)   0
#define DELSOPEN(o)   0
#else
#define ADDOPEN(o, g) ((mem[o].adds & BIT(g)) && (mem[o].far || OPEN(0, ADD, ID(o, g)) || OPEN(1, ADD, ID(o, g))))
#define DELOPEN(o, g) ((mem[o].dels & BIT(g)) && (mem[o].far || OPEN(0, DEL, ID(o, g)) || OPEN(1, DEL, ID(o, g))))
#if G == 2
#define ADDSOPEN(o) (ADDOPEN(o, 0) || ADDOPEN(o, 1))
#define DELSOPEN(o) (DELOPEN(o, 0) || DELOPEN(o, 1))
#elif G == 3
#define ADDSOPEN(o) (ADDOPEN(o, 0) || ADDOPEN(o, 1) || ADDOPEN(o, 2))
#define DELSOPEN(o) (DELOPEN(o, 0) || DELOPEN(o, 1) || DELOPEN(o, 2))
#else
#define ADDSOPEN(o) (ADDOPEN(o, 0) || ADDOPEN(o, 1) || ADDOPEN(o, 2) || ADDOPEN(o, 3))
#define DELSOPEN(o) (DELOPEN(o, 0) || DELOPEN(o, 1) || DELOPEN(o, 2) || DELOPEN(o, 3))
#endif
#endif

/* Rule R3: an ADD with an unknown outcome is waited for. */
#ifdef NO_LATE_ADD
#define WAITADD(o, g) 0
#define WAITADDS(o)   0
#else
#define WAITADD(o, g) ADDOPEN(o, g)
#define WAITADDS(o)   ADDSOPEN(o)
#endif

/* Rule R4: no ADD uses an ID on which an earlier DEL may still act. */
#if defined(NO_LATE_DEL) || QUEUED
#define AVOID(o, g) 0
#else
#define AVOID(o, g) DELOPEN(o, g)
#endif

/* Rule R4: what is released is remembered until its DELs are over. */
#if QUEUED
#ifdef NO_RANDOM_ID
#define REMEMBER(o) 1
#else
#define REMEMBER(o) 0
#endif
#elif defined(NO_TOMBSTONE)
#define REMEMBER(o) 0
#else
#define REMEMBER(o) DELSOPEN(o)
#endif

/* Rule R3: the DEL that ends it begins after the deadline. */
#ifdef NO_DEL_AFTER_DEADLINE
#define UNFINISHED(o) (task[o].failed || WAITADDS(o))
#else
#define UNFINISHED(o) (mem[o].ctx & ~task[o].gone)
#endif

/* A bound, not a rule: no generation is left, so the request is refused. */
#if QUEUED && !defined(NO_RANDOM_ID)
#define GENLEFT(o) (owner[o].fresh < G)
#elif QUEUED
#define GENLEFT(o) (mem[o].gen + 1 < G)
#else
#define GENLEFT(o) (!AVOID(o, mem[o].gen) || mem[o].gen + 1 < G)
#endif

/* Rule R8: another attachment has the address. */
#ifdef NO_DUPLICATE
#define CONFLICT(o, a) 0
#else
#define CONFLICT(o, a) (task[1-(o)].got == (a) || mem[1-(o)].addr == (a) && (mem[1-(o)].state == HELD || mem[1-(o)].state == ADDING))
#endif

/* Rule R7: what proves, after a reboot too, that the address is held. */
#if VERIFY == NOTHING
#define STANDS(o) 1
#elif VERIFY == LOOKUP && !defined(NO_REBOOT_PROOF)
#define STANDS(o) (HOLDS(ID(o, mem[o].gen)) & mem[o].addr)
#elif STORE == NODE && !defined(NO_REBOOT_PROOF)
#define STANDS(o) (mem[o].boot && HOLDS(ID(o, mem[o].gen)))
#else
#define STANDS(o) HOLDS(ID(o, mem[o].gen))
#endif

/* Older generations of a held attachment whose DEL is due. */
#if G == 1
#define UNTIDY(o) 0
#else
#define UNTIDYG(o, g) ((mem[o].ctx & BIT(g)) && g != mem[o].gen && !WAITADD(o, g) -> BIT(g) : 0)
#if G == 2
#define UNTIDY(o) (UNTIDYG(o, 0) | UNTIDYG(o, 1))
#elif G == 3
#define UNTIDY(o) (UNTIDYG(o, 0) | UNTIDYG(o, 1) | UNTIDYG(o, 2))
#else
#define UNTIDY(o) (UNTIDYG(o, 0) | UNTIDYG(o, 1) | UNTIDYG(o, 2) | UNTIDYG(o, 3))
#endif
#endif

/* Background work is due. */
#define DUE(o) ( \
	(mem[o].state == RELEASING || mem[o].state == ADDING && !mem[o].claimed) && (task[o].todo || !WAITADDS(o)) || \
	mem[o].state == ADDING && mem[o].claimed && GENLEFT(o) && (task[o].todo || !task[o].waits && !WAITADDS(o)) || \
	mem[o].state == HELD && (task[o].todo || UNTIDY(o)) || \
	mem[o].state == TOMBSTONE && !REMEMBER(o))

/* Assumption: an address that the plugin by itself gives twice is one that another
 * attachment has, not a pod, and not an owner whose record was lost. */
#define RECORDED(o) (mem[o].state == HELD -> mem[o].addr & HOLDS(ID(o, mem[o].gen)) : 0)
#ifdef DROP_UNIQUE
#define SHARING(o) (RECORDED(1-(o)) | HOLDS(POD))
#else
#define SHARING(o) RECORDED(1-(o))
#endif
#define SHARED(o) (SHARING(o) == 3 -> 1 : SHARING(o))

/* What the IDs of an owner hold. */
#if G == 1
#define OWN(o) HOLDS(o)
#elif G == 2
#define OWN(o) (HOLDS(2*(o)) | HOLDS(2*(o)+1))
#elif G == 3
#define OWN(o) (HOLDS(3*(o)) | HOLDS(3*(o)+1) | HOLDS(3*(o)+2))
#else
#define OWN(o) (HOLDS(4*(o)) | HOLDS(4*(o)+1) | HOLDS(4*(o)+2) | HOLDS(4*(o)+3))
#endif
#define QUIETSLOT(i) (late[i].op == 0 || late[i].op == QDEL)
#define HOLDER(a) ((HOLDS(0) & (a)) -> 1 : ((HOLDS(1) & (a)) -> 2 : ((HOLDS(2) & (a)) -> 3 : 0)))

#ifdef DROP_RESURRECTED
#define RETURNS(h) 1
#else
/* Assumption: an older store brings back no lease of an owner without a record. */
#define RETURNS(h) (h == 3 || disk[h-1].state != NONE)
#endif

/* --- journal ---------------------------------------------------------------- */

inline copy(to, from) {
	to.state = from.state; to.gen = from.gen; to.addr = from.addr; to.claimed = from.claimed; to.ctx = from.ctx;
	to.adds = from.adds; to.dels = from.dels; to.boot = from.boot; to.far = from.far
}

inline clear(r) {
	r.state = 0; r.gen = 0; r.addr = 0; r.claimed = 0; r.ctx = 0; r.adds = 0; r.dels = 0; r.boot = 0; r.far = 0
}

/* write makes next durable, and the record in memory after it. A write that
 * failed may be on disk all the same. */
inline write(o) {
	if
	:: d_step { copy(disk[o], next); copy(mem[o], next); task[o].dirty = 0; ok = 1 }
	:: faults -> SAY1("journal: owner %d: write fails, nothing on disk\n", o); faults--; task[o].dirty = 1; ok = 0
	:: faults -> SAY1("journal: owner %d: write fails, but is on disk\n", o); faults--; d_step { copy(disk[o], next); task[o].dirty = 1; ok = 0 }
	fi
}

inline writeInMemoryOnly(o) {
	d_step { copy(mem[o], next); task[o].dirty = 0; ok = 1 }
}

/* --- plugin ----------------------------------------------------------------- */

inline execDel(cid) {
	d_step { PUT(cid, 0); excused = excused & ~BIT(cid); extra = extra & ~BIT(cid) }
}

/* execAdd carries out an ADD; r is the address that it returns, 0 for an error. */
inline execAdd(cid, ask) {
	if
	:: HOLDS(cid) && REPEAT == REFUSED -> r = 0
	:: HOLDS(cid) && REPEAT == SAME -> r = (HOLDS(cid) == 3 -> 1 : HOLDS(cid))
	:: (HOLDS(cid) == 0 || REPEAT == ANOTHER) && ask != 2 && FREE(1) -> r = 1; PUT(cid, HOLDS(cid) | 1)
	:: (HOLDS(cid) == 0 || REPEAT == ANOTHER) && ask != 1 && FREE(2) -> r = 2; PUT(cid, HOLDS(cid) | 2)
	:: (HOLDS(cid) == 0 || REPEAT == ANOTHER) && !(ask != 2 && FREE(1)) && !(ask != 1 && FREE(2)) -> r = 0
	fi
}

#define ROOM (late[1].op == 0)

/* begin leaves an operation in flight. */
inline begin(verb, cid, ask, alive) {
	d_step {
		if
		:: late[0].op == 0 -> late[0].op = verb; late[0].id = cid; late[0].want = ask; late[0].live = alive
		:: else -> late[1].op = verb; late[1].id = cid; late[1].want = ask; late[1].live = alive
		fi
	}
}

/* over removes an operation. */
inline over(i) {
	if
	:: i == 0 ->
		late[0].op = late[1].op; late[0].id = late[1].id; late[0].want = late[1].want; late[0].live = late[1].live; late[0].done = late[1].done
	:: else
	fi;
	late[1].op = 0; late[1].id = 0; late[1].want = 0; late[1].live = 0; late[1].done = 0
}

/* pass lets the deadlines of an operation pass, unless the clock has been set back. */
inline pass(i) {
	if
	:: late[i].op == ADD && !(late[1-i].op == ADD && late[1-i].id == late[i].id) ->
		mem[late[i].id / G].adds = mem[late[i].id / G].adds & ~(mem[late[i].id / G].far -> 0 : BIT(late[i].id % G));
		disk[late[i].id / G].adds = disk[late[i].id / G].adds & ~(disk[late[i].id / G].far -> 0 : BIT(late[i].id % G))
	:: late[i].op == DEL && !(late[1-i].op == DEL && late[1-i].id == late[i].id) ->
		mem[late[i].id / G].dels = mem[late[i].id / G].dels & ~(mem[late[i].id / G].far -> 0 : BIT(late[i].id % G));
		disk[late[i].id / G].dels = disk[late[i].id / G].dels & ~(disk[late[i].id / G].far -> 0 : BIT(late[i].id % G))
	:: else
	fi
}

/* --- engine ----------------------------------------------------------------- */

/* rest ends an operation. */
inline rest(o) {
	d_step { task[o].pc = IDLE; task[o].goal = 0; task[o].todel = 0; task[o].gone = 0; task[o].want = 0; task[o].got = 0; task[o].client = 0; task[o].failed = 0 }
}

/* answer reports the address to the owner. One that its owner is just releasing
 * is not used by it. */
inline answer(o) {
	SAY2("owner %d is told address %d\n", o, mem[o].addr);
	d_step {
		owner[o].has = (owner[o].asked == mem[o].addr -> 0 : mem[o].addr);
		twoHolders = twoHolders || owner[o].has && (owner[1-o].has == owner[o].has || podHas == owner[o].has)
	};
	assert(!twoHolders)
}

/* verify: a held attachment is verified. */
inline verify(o) {
	if
	:: faults ->
		SAY1("engine: owner %d: could not ask whether the address is held\n", o);
		faults--;
#ifdef NO_DEFINITE_NO
		acquire(o)
#else
		/* Rule R6: nothing is concluded from that. */
		task[o].todo = (task[o].client -> task[o].todo : 1); rest(o)
#endif
	:: STANDS(o) ->
		SAY1("engine: owner %d: verified\n", o);
		task[o].todo = 0;
		if
#ifndef NO_REWRITE
		/* Rule R1: the disk must say held before the answer. */
		:: task[o].dirty || !mem[o].boot -> task[o].got = mem[o].addr; task[o].pc = RECORD
#endif
		:: else ->
			if
			:: task[o].client -> answer(o)
			:: else
			fi;
			rest(o)
		fi
	:: !STANDS(o) && GENLEFT(o) -> SAY1("engine: owner %d: not held, or not proved\n", o); task[o].todo = 0; acquire(o)
	:: !STANDS(o) && !GENLEFT(o) -> task[o].todo = 0; rest(o)
	fi
}

/* acquire: steps 1 to 3. It chooses the ID and writes adding. */
inline acquire(o) {
	d_step {
		copy(next, mem[o]);
#if QUEUED && !defined(NO_RANDOM_ID)
		/* Rule R12: an ID that was never used before. */
		next.gen = owner[o].fresh; owner[o].fresh = owner[o].fresh + 1; task[o].todel = mem[o].ctx;
#elif QUEUED
		next.gen = (mem[o].state == NONE -> 0 : mem[o].gen + 1); task[o].todel = mem[o].ctx;
#else
		/* Rule R4: the next generation, if a DEL may still act on this one. */
		next.gen = mem[o].gen + (AVOID(o, mem[o].gen) -> 1 : 0);
		task[o].todel = mem[o].ctx;
#ifndef NO_FIRST_DEL
		/* Rule R2: an ID of which nothing is known gets a DEL first. */
		task[o].todel = task[o].todel | (next.gen == mem[o].gen && REPEAT != SAME -> BIT(next.gen) : 0);
#endif
#endif
		next.state = ADDING; next.ctx = next.ctx | BIT(next.gen); next.boot = 1;
		next.addr = (next.claimed -> next.addr : 0);
		task[o].want = next.addr; task[o].waits = 0
	};
#if VERIFY == LOOKUP && !defined(NO_ADOPT)
	/* Rule R2: without a record the store itself is looked at. */
	if
	:: mem[o].state == NONE && HOLDS(ID(o, 0)) && !CONFLICT(o, HOLDS(ID(o, 0))) ->
		task[o].got = HOLDS(ID(o, 0)); task[o].todel = 0
	:: mem[o].state == NONE && !HOLDS(ID(o, 0)) -> task[o].todel = 0
	:: else
	fi;
#endif
	if
	:: task[o].got -> SAY2("engine: owner %d: adopts address %d\n", o, task[o].got); d_step { clear(next); task[o].pc = RECORD }
	:: else ->
		writeAdding(o);
		if
		:: ok -> task[o].goal = ACQUIRE; task[o].pc = (task[o].todel -> RUNDEL : RUNADD)
		:: !ok && mem[o].state == NONE -> removeUnwritten(o); rest(o)
		:: !ok && mem[o].state != NONE -> task[o].todo = 1; rest(o)
		fi;
		d_step { clear(next); ok = 0 }
	fi
}

/* writeAdding: rule R1, adding is durable before DEL and ADD. */
inline writeAdding(o) {
	SAY2("engine: owner %d: write adding, generation %d\n", o, next.gen);
#ifdef NO_ADDING
	writeInMemoryOnly(o)
#else
	write(o)
#endif
}

/* removeUnwritten removes a first record that could not be written. */
inline removeUnwritten(o) {
	if
	:: d_step { clear(disk[o]); task[o].dirty = 0 }
	:: faults -> faults--; d_step { copy(mem[o], next); task[o].todo = 1 }
	fi
}

/* again: rule R4, the DEL before the ADD may still act, so the ID is spent. */
inline again(o) {
	if
	:: GENLEFT(o) ->
		d_step { copy(next, mem[o]); next.gen = next.gen + 1; next.ctx = next.ctx | BIT(next.gen) };
		writeAdding(o);
		d_step { clear(next) };
		if
		:: ok -> task[o].pc = RUNADD
		:: else -> task[o].todo = 1; rest(o)
		fi;
		ok = 0
	:: else -> revert(o)
	fi
}

/* runDel runs the next DEL. */
inline runDel(o) {
	g = TOP(task[o].todel); task[o].todel = task[o].todel & ~BIT(g);
	if
	:: SAY2("plugin: DEL of owner %d, generation %d\n", o, g); execDel(ID(o, g)); deleted(o)
#if QUEUED
	:: faults && ROOM -> SAY2("plugin: DEL of owner %d, generation %d: success, but queued\n", o, g); faults--; begin(QDEL, ID(o, g), 0, 0); deleted(o)
#endif
	:: faults -> SAY2("plugin: DEL of owner %d, generation %d: refused\n", o, g); faults--; task[o].failed = 1; overlap(o)
#if STORE == NODE
	:: faults -> SAY2("plugin: DEL of owner %d, generation %d: unknown outcome, has acted\n", o, g); faults--; execDel(ID(o, g)); task[o].failed = 1
#else
	:: faults && ROOM ->
		SAY2("plugin: DEL of owner %d, generation %d: unknown outcome, may act later\n", o, g);
		faults--; begin(DEL, ID(o, g), 0, 0); mem[o].dels = mem[o].dels | BIT(g); task[o].failed = 1; overlap(o)
#endif
	fi;
	g = 0;
	if
	:: task[o].todel == 0 && task[o].goal == ACQUIRE -> task[o].pc = (AVOID(o, mem[o].gen) -> AGAIN : RUNADD); task[o].failed = 0
	:: task[o].todel == 0 && task[o].goal != ACQUIRE -> task[o].pc = FINISH
	:: else
	fi
}

/* overlap: documented case, after a DEL that failed the ADD may get one address more. */
inline overlap(o) {
#if REPEAT == ANOTHER && !defined(DROP_EXTRA)
	extra = extra | (task[o].goal == ACQUIRE -> BIT(ID(o, g)) : 0)
#else
	skip
#endif
}

/* deleted: a context is done with, unless its ADD may still act (rule R3). That
 * of the last ADD stays in the record until the record goes. */
inline deleted(o) {
	if
	:: !WAITADD(o, g) && g != mem[o].gen && task[o].goal != RETURN -> mem[o].ctx = mem[o].ctx & ~BIT(g)
	:: !WAITADD(o, g) && (task[o].goal == RETURN || g == mem[o].gen && task[o].goal == REVERT) -> task[o].gone = task[o].gone | BIT(g)
	:: else
	fi
}

/* runAdd runs the ADD: step 5, and step 6, which reserves the result. */
inline runAdd(o) {
	if
	:: execAdd(ID(o, mem[o].gen), task[o].want);
		SAY2("plugin: ADD of owner %d returns %d\n", o, r);
		if
		:: r -> reserve(o)
		:: else -> refused(o)
		fi
	:: faults ->
		faults--;
		if
		:: execAdd(ID(o, mem[o].gen), task[o].want); SAY2("plugin: ADD of owner %d: error, but allocated %d\n", o, r)
		:: SAY1("plugin: ADD of owner %d: error\n", o)
		fi;
		refused(o)
#if STORE == REMOTE
	:: faults && ROOM ->
		SAY1("plugin: ADD of owner %d: unknown outcome, may act later\n", o);
		faults--; begin(ADD, ID(o, mem[o].gen), task[o].want, 0); mem[o].adds = mem[o].adds | BIT(mem[o].gen); revert(o)
#endif
	:: faults && SHARED(o) && HOLDS(ID(o, mem[o].gen)) == 0 ->
		faults--; r = SHARED(o); PUT(ID(o, mem[o].gen), r);
		SAY2("plugin: ADD of owner %d returns %d, which another ID holds\n", o, r);
		reserve(o)
	fi;
	r = 0
}

/* reserve: step 6 and rule R8. In the background only the owed address will do. */
inline reserve(o) {
	if
	:: CONFLICT(o, r) -> SAY1("engine: owner %d: duplicate, released again\n", o); task[1-o].todo = 1; revert(o)
	:: !CONFLICT(o, r) && !task[o].client && r != mem[o].addr -> revert(o)
	:: else -> task[o].got = r; task[o].pc = RECORD
	fi
}

/* refused: less is asked for, or what the ADD may have left is undone. */
inline refused(o) {
	if
	:: task[o].client && task[o].want -> task[o].want = 0; task[o].todel = mem[o].ctx; task[o].goal = ACQUIRE; task[o].pc = RUNDEL
	:: else -> revert(o)
	fi
}

/* revert undoes an acquisition. */
inline revert(o) {
	d_step { task[o].got = 0; task[o].want = 0; task[o].failed = 0; task[o].todel = mem[o].ctx; task[o].goal = REVERT; task[o].pc = RUNDEL }
}

/* hold: step 7, held is durable before the answer (rule R1). */
inline commit(o) {
	d_step {
		copy(next, mem[o]);
		next.state = HELD; next.addr = task[o].got; next.claimed = 1; next.boot = 1; next.ctx = next.ctx | BIT(next.gen)
	};
#ifdef NO_HELD
	SAY1("engine: owner %d: held is not written\n", o);
	writeInMemoryOnly(o);
#else
	SAY1("engine: owner %d: write held\n", o);
	write(o);
#endif
	d_step { clear(next) };
	if
	:: ok ->
		ok = 0;
#ifdef DROP_LOST_GENERATIONS
		excused = excused & ~(((1 << G) - 1) << (o*G));
#endif
		excused = (mem[o].gen == 0 -> excused & ~BIT(ID(o, 0)) : excused);
		if
		:: task[o].client -> task[o].got = 0; task[o].pc = REPLY
		:: else -> rest(o)
		fi
	:: !ok && mem[o].state == NONE -> removeUnwrittenAdopted(o)
	:: !ok && mem[o].state == HELD -> task[o].todo = 1; rest(o)
	:: !ok && mem[o].state == ADDING -> task[o].got = 0; task[o].pc = UNDO
	fi
}

/* removeUnwrittenAdopted: the record of an adopted lease could not be written. */
inline removeUnwrittenAdopted(o) {
	if
	:: d_step { clear(disk[o]); task[o].dirty = 0 }
	:: faults -> faults--; d_step { copy(mem[o], disk[o]); mem[o].state = HELD; mem[o].gen = 0; mem[o].addr = task[o].got; mem[o].claimed = 1; mem[o].ctx = 1; mem[o].boot = 1; task[o].todo = 1 }
	fi;
	rest(o)
}

/* undoAcquire: rule R10, the disk may say held, so adding is written before the DEL. */
inline undoAcquire(o) {
#ifdef NO_WRITE_FIRST
	revert(o)
#else
	copy(next, mem[o]);
	SAY1("engine: owner %d: write adding before the DEL\n", o);
	write(o);
	d_step { clear(next) };
	if
	:: ok -> revert(o)
	:: else -> task[o].todo = 1; rest(o)
	fi;
	ok = 0
#endif
}

/* finish: after the DELs of an undo or a release. */
inline finish(o) {
	if
	:: UNFINISHED(o) -> task[o].todo = task[o].failed
	:: !UNFINISHED(o) && task[o].goal == REVERT && mem[o].claimed -> task[o].waits = 1
	:: else -> removeRecord(o)
	fi;
	rest(o)
}

/* forget removes the record, or keeps a tombstone while a DEL may act (rule R4). */
inline removeRecord(o) {
	if
	:: REMEMBER(o) ->
		SAY1("engine: owner %d: write tombstone\n", o);
		d_step { next.state = TOMBSTONE; next.gen = mem[o].gen; next.dels = mem[o].dels; next.far = mem[o].far };
		write(o);
		d_step { clear(next) };
		task[o].todo = (ok -> 0 : 1); ok = 0
	:: else ->
		SAY1("engine: owner %d: remove the record\n", o);
		if
		:: d_step { clear(disk[o]); clear(mem[o]); task[o].dirty = 0; task[o].todo = 0; task[o].waits = 0 }
		:: faults -> SAY("journal: remove fails\n"); faults--; task[o].dirty = 1; task[o].todo = 1
		:: faults -> SAY("journal: remove fails, but is done\n"); faults--; d_step { clear(disk[o]); task[o].dirty = 1; task[o].todo = 1 }
		fi
	fi
}

/* release: rule R13, it looks again under the lock. */
inline releaseAddress(o) {
	g = owner[o].asked; owner[o].asked = 0;
	if
#ifdef NO_LOOK_AGAIN
	:: mem[o].state == HELD || mem[o].state == RELEASING || mem[o].state == ADDING && mem[o].claimed -> g = 0; release(o)
#else
	:: mem[o].addr == g && (mem[o].state == HELD || mem[o].state == RELEASING || mem[o].state == ADDING && mem[o].claimed) -> g = 0; release(o)
#endif
	:: else -> g = 0
	fi
}

/* release: rule R1, releasing is durable before the DEL. */
inline release(o) {
	if
	:: mem[o].state != RELEASING || task[o].dirty ->
		d_step { copy(next, mem[o]); next.state = RELEASING; next.claimed = 0 };
		SAY1("engine: owner %d: write releasing\n", o);
#ifdef NO_RELEASING
		writeInMemoryOnly(o);
#else
		write(o);
#endif
		d_step { clear(next) }
	:: else -> ok = 1
	fi;
	if
	:: ok -> task[o].goal = RETURN; task[o].todel = mem[o].ctx; task[o].waits = 0; task[o].todo = 0; task[o].pc = (task[o].todel -> RUNDEL : FINISH)
	:: else -> task[o].todo = 1
	fi;
	ok = 0
}

/* reconcile: background work. */
inline reconcile(o) {
	if
	:: mem[o].state == RELEASING || mem[o].state == ADDING && !mem[o].claimed -> task[o].todo = 0; release(o)
	:: mem[o].state == ADDING && mem[o].claimed -> task[o].todo = 0; acquire(o)
	:: mem[o].state == HELD && task[o].todo -> verify(o)
	:: mem[o].state == HELD && !task[o].todo -> task[o].todel = UNTIDY(o); task[o].goal = TIDY; task[o].pc = RUNDEL
	:: mem[o].state == TOMBSTONE -> removeRecord(o)
	fi
}

/* deletedOldID: the DELs of older generations have run. */
inline deletedOldID(o) {
	d_step { copy(next, mem[o]) };
	write(o);
	d_step { clear(next) };
	ok = 0; rest(o)
}

/* --- environment ------------------------------------------------------------ */

inline getPod(a) {
	SAY1("the pod gets address %d\n", a);
	d_step { pods--; PUT(POD, a); podHas = a; twoHolders = twoHolders || owner[0].has == a || owner[1].has == a };
	assert(!twoHolders)
}

inline act(i) {
	if
	:: late[i].op == ADD ->
#if REPEAT == ANOTHER && !defined(DROP_EXTRA)
		/* Documented case: a late ADD gets one more beside what a new ADD with its ID gets. */
		extra = extra | (HOLDS(late[i].id) || task[late[i].id / G].pc != IDLE -> BIT(late[i].id) : 0);
#endif
		execAdd(late[i].id, late[i].want);
		SAY2("late: ADD of ID %d allocates %d\n", late[i].id, r); r = 0
	:: else -> SAY1("late: DEL of ID %d acts\n", late[i].id); execDel(late[i].id)
	fi;
	if
	:: STORE == NODE -> d_step { over(i) }
	:: else -> late[i].done = 1; late[i].live = 0
	fi
}

inline end(i) {
	SAY1("late: the process for ID %d is ended\n", late[i].id);
	if
	:: STORE == NODE -> d_step { over(i) }
	:: else -> late[i].live = 0
	fi
}

/* leaveBehind: the process that runs may go on. */
inline leaveBehind(o, alive) {
	if
	:: ROOM && task[o].pc == RUNDEL && !LOCKED(ID(o, TOP(task[o].todel))) -> SAY1("a DEL process of owner %d goes on\n", o); begin(DEL, ID(o, TOP(task[o].todel)), 0, alive)
	:: ROOM && task[o].pc == RUNADD && !LOCKED(ID(o, mem[o].gen)) -> SAY1("an ADD process of owner %d goes on\n", o); begin(ADD, ID(o, mem[o].gen), task[o].want, alive)
	:: true
	fi
}

/* restart: what is in memory is lost, and the journal is read. */
inline restart(o) {
	d_step {
		task[o].pc = IDLE; task[o].goal = 0; task[o].todel = 0; task[o].gone = 0; task[o].want = 0; task[o].got = 0; task[o].client = 0; task[o].failed = 0;
		task[o].dirty = 0; task[o].waits = 0; owner[o].asked = 0;
		copy(mem[o], disk[o]);
		task[o].todo = (mem[o].state == NONE || mem[o].state == TOMBSTONE -> 0 : 1);
#if STORE == REMOTE
#ifndef NO_CAP
		/* Rule R11: a deadline is at most now + the profile's seconds. */
		mem[o].far = 0;
#endif
#ifndef NO_IN_FLIGHT
		/* Rule R5: what was cut short counts as in flight until now. */
		if
		:: mem[o].state == ADDING -> mem[o].adds = mem[o].adds | BIT(mem[o].gen); mem[o].dels = mem[o].dels | mem[o].ctx
		:: mem[o].state == RELEASING -> mem[o].dels = mem[o].dels | mem[o].ctx
#ifndef NO_IN_FLIGHT_OLD_ID
		:: mem[o].state == HELD -> mem[o].dels = mem[o].dels | (mem[o].ctx & ~BIT(mem[o].gen))
#endif
		:: else
		fi;
#endif
		settle(o)
#endif
	}
}

/* settle drops deadlines that have passed. */
inline settle(o) {
	mem[o].adds = mem[o].adds & ((ADDOPEN(o, 0) -> 1 : 0) | (ADDOPEN(o, 1) -> 2 : 0) | (ADDOPEN(o, 2) -> 4 : 0) | (ADDOPEN(o, 3) -> 8 : 0));
	mem[o].dels = mem[o].dels & ((DELOPEN(o, 0) -> 1 : 0) | (DELOPEN(o, 1) -> 2 : 0) | (DELOPEN(o, 2) -> 4 : 0) | (DELOPEN(o, 3) -> 8 : 0))
}

inline loseJournal() {
	SAY("*** crash, and the journal is lost\n");
	faults--;
#ifdef DROP_LOST_QUIET
	leaveBehind(0, 1); leaveBehind(1, 1);
#endif
	d_step { clear(disk[0]); clear(disk[1]); owner[0].forgot = (owner[0].has -> 1 : 0); owner[1].forgot = (owner[1].has -> 1 : 0); forgive() };
	restart(0); restart(1)
}

/* forgive: documented case, what a lost journal leaves stays until its owner asks again. */
inline forgive() {
#ifdef DROP_LOST_LEASES
	skip
#else
	excused = excused | (HOLDS(0) -> 1 : 0) | (HOLDS(1) -> 2 : 0);
#if G > 1
	excused = excused | (HOLDS(2) -> 4 : 0) | (HOLDS(3) -> 8 : 0);
#endif
#if G > 2
	excused = excused | (HOLDS(4) -> 16 : 0) | (HOLDS(5) -> 32 : 0);
#endif
#if G > 3
	excused = excused | (HOLDS(6) -> 64 : 0) | (HOLDS(7) -> 128 : 0);
#endif
	skip
#endif
}

/* reboot: pods and clients are gone and ask again. */
inline reboot() {
	SAY("*** reboot\n");
	faults--;
#ifndef DROP_REBOOT_ENDS
	/* Assumption: what ran on the node asks again before it uses an address. */
	d_step { owner[0].has = 0; owner[1].has = 0; podHas = 0; owner[0].forgot = 0; owner[1].forgot = 0 };
#endif
#if STORE == NODE
	/* No process is left, and the store may lack its last writes. */
	d_step { over(0); over(0) };
	loseWrites(1); loseWrites(2);
	d_step { older = 0; disk[0].boot = 0; disk[1].boot = 0 };
	restart(0); restart(1)
#else
	/* Rule R5: at a server what is in flight goes on. */
	leaveBehind(0, 0); leaveBehind(1, 0);
	d_step { late[0].live = 0; late[1].live = 0 };
	restart(0); restart(1);
#ifdef NO_IN_FLIGHT_REBOOT
	d_step { mem[0].adds = 0; mem[0].dels = 0; mem[1].adds = 0; mem[1].dels = 0 };
#endif
	skip
#endif
}

inline loseWrites(a) {
	if
	:: true
	:: TAKEN & a -> SAY1("the store has lost address %d\n", a); drop(a)
	:: OLDER(a) && OLDER(a) != HOLDER(a) && RETURNS(OLDER(a)) ->
		SAY2("the store is older: address %d is held by ID %d\n", a, OLDER(a) - 1);
		drop(a);
		d_step { PUT(OLDER(a)-1, HOLDS(OLDER(a)-1) | a); resurrected(a) }
	fi
}

/* resurrected: documented case, an older lease beside the recorded one stays until the release. */
inline resurrected(a) {
#ifndef DROP_EXTRA
	extra = extra | (OLDER(a) < 3 -> BIT(OLDER(a)-1) : 0)
#else
	skip
#endif
}

inline drop(a) {
	store = store & ~(a * 87381)
}

/* --- properties ------------------------------------------------------------- */

/* Nothing is under way and nothing is due. */
#define QUIET (task[0].pc == IDLE && task[1].pc == IDLE && owner[0].asked == 0 && owner[1].asked == 0 && late[0].op == 0 && !DUE(0) && !DUE(1))

/* Then every record is final, and the plugin holds for us what they say. */
#if QUEUED && defined(NO_RANDOM_ID)
#define KEPT(o) (mem[o].state == TOMBSTONE)
#else
#define KEPT(o) 0
#endif
#define FINAL(o) (KEPT(o) || mem[o].state == NONE || mem[o].state == HELD || mem[o].state == ADDING && mem[o].claimed && task[o].waits)
#define CLEAN(o, g) ((HOLDS(ID(o, g)) & ~(mem[o].state == HELD && mem[o].gen == g -> mem[o].addr | EXTRA(ID(o, g)) : 0)) == 0 || (excused & BIT(ID(o, g))))
#define EXTRA(n) ((extra & BIT(n)) -> 3 : 0)
#if G == 1
#define SETTLED (FINAL(0) && FINAL(1) && CLEAN(0, 0) && CLEAN(1, 0))
#elif G == 2
#define SETTLED (FINAL(0) && FINAL(1) && CLEAN(0, 0) && CLEAN(1, 0) && CLEAN(0, 1) && CLEAN(1, 1))
#elif G == 3
#define SETTLED (FINAL(0) && FINAL(1) && CLEAN(0, 0) && CLEAN(1, 0) && CLEAN(0, 1) && CLEAN(1, 1) && CLEAN(0, 2) && CLEAN(1, 2))
#else
#define SETTLED (FINAL(0) && FINAL(1) && CLEAN(0, 0) && CLEAN(1, 0) && CLEAN(0, 1) && CLEAN(1, 1) && CLEAN(0, 2) && CLEAN(1, 2) && CLEAN(0, 3) && CLEAN(1, 3))
#endif

/* --- processes --- */

proctype engine(byte o) {
	byte g, r;
	bit ok;
	do
	:: atomic { task[o].pc == IDLE && calls && GENLEFT(o) && (o == 0 || calls < CALLS) ->
		calls--; task[o].client = 1;
		SAY1("owner %d asks\n", o);
		d_step {
#ifndef DROP_ASKS_AGAIN
			/* Assumption: after a lost journal an owner that asks again waits for the answer. */
			owner[o].has = (owner[o].forgot && VERIFY != LOOKUP -> 0 : owner[o].has);
#endif
			owner[o].forgot = 0
		};
		if
		:: mem[o].state == HELD -> verify(o)
		:: else -> acquire(o)
		fi }
	/* A release names an address, and the engine finds whose. */
	:: atomic { calls && owner[o].asked == 0 && mem[o].addr && (mem[o].state == HELD || mem[o].state == RELEASING || mem[o].claimed) ->
		SAY2("owner %d releases address %d\n", o, mem[o].addr);
		d_step { calls--; owner[o].asked = mem[o].addr; owner[o].has = (owner[o].has == owner[o].asked -> 0 : owner[o].has) } }
	:: atomic { task[o].pc == IDLE && owner[o].asked -> SAY2("engine: owner %d: release of address %d\n", o, owner[o].asked); releaseAddress(o) }
	:: atomic { task[o].pc == IDLE && DUE(o) -> SAY1("engine: owner %d: background\n", o); reconcile(o) }
#ifdef NO_PROCESS_LOCK
	:: atomic { task[o].pc == RUNDEL -> runDel(o) }
	:: atomic { task[o].pc == RUNADD -> runAdd(o) }
#else
	/* Rule R9: a process of a previous run is waited for. */
	:: atomic { task[o].pc == RUNDEL && !LOCKED(ID(o, TOP(task[o].todel))) -> runDel(o) }
	:: atomic { task[o].pc == RUNADD && !LOCKED(ID(o, mem[o].gen)) -> runAdd(o) }
#endif
	:: atomic { task[o].pc == AGAIN -> again(o) }
	:: atomic { task[o].pc == RECORD -> commit(o) }
	:: atomic { task[o].pc == REPLY -> answer(o); rest(o) }
	:: atomic { task[o].pc == UNDO -> undoAcquire(o) }
	:: atomic { task[o].pc == FINISH && task[o].goal == TIDY -> deletedOldID(o) }
	:: atomic { task[o].pc == FINISH && task[o].goal != TIDY -> finish(o) }
	od
}

init {
	byte r;
	atomic { run engine(0); run engine(1) };
	do
	/* The pod calls the plugin directly. */
	:: atomic { pods && HOLDS(POD) == 0 && podHas == 0 && FREE(1) -> getPod(1) }
	:: atomic { pods && HOLDS(POD) == 0 && podHas == 0 && FREE(2) -> getPod(2) }
	:: atomic { HOLDS(POD) -> SAY("the pod's DEL\n"); d_step { PUT(POD, 0); podHas = 0 } }
	/* Operations in flight act, are ended, or are over. */
	:: atomic { late[0].op && !late[0].done -> act(0) }
	:: atomic { late[1].op && !late[1].done -> act(1) }
	:: atomic { late[0].live -> end(0) }
	:: atomic { late[1].live -> end(1) }
	:: d_step { late[0].op && !late[0].live && (late[0].op != QDEL || late[0].done) -> pass(0); over(0) }
	:: d_step { late[1].op && !late[1].live && (late[1].op != QDEL || late[1].done) -> pass(1); over(1) }
#ifdef DROP_SECONDS
	:: d_step { late[0].op && !late[0].live && !late[0].done -> pass(0) }
#endif
	/* Crash, reboot and loss. */
	:: atomic { faults -> faults--; SAY("*** crash\n"); leaveBehind(0, 1); leaveBehind(1, 1); restart(0); restart(1) }
#ifdef DROP_LOST_QUIET
	:: atomic { faults -> loseJournal() }
#else
	/* Assumption: a journal is lost only when nothing is in flight, and no address is given twice. */
	:: atomic { faults && QUIETSLOT(0) && QUIETSLOT(1) && !(OWN(0) & OWN(1)) -> loseJournal() }
#endif
	:: atomic { faults -> reboot() }
#ifdef DROP_STORE_KEPT
	:: d_step { faults && (TAKEN & 1) -> SAY("*** the store loses address 1\n"); faults--; drop(1) }
	:: d_step { faults && (TAKEN & 2) -> SAY("*** the store loses address 2\n"); faults--; drop(2) }
#endif
#if STORE == NODE
	:: d_step { faults && (HOLDER(1) != OLDER(1) || HOLDER(2) != OLDER(2)) -> SAY("*** the store is backed up\n"); faults--; older = HOLDER(1) | HOLDER(2) << 2 }
#else
	:: d_step { faults && (disk[0].adds | disk[0].dels | disk[1].adds | disk[1].dels) ->
		SAY("*** the clock is set back\n"); faults--;
		disk[0].far = (disk[0].adds | disk[0].dels -> 1 : 0); disk[1].far = (disk[1].adds | disk[1].dels -> 1 : 0) }
#ifdef DROP_CLOCK_AHEAD
	:: d_step { faults && (disk[0].adds | disk[0].dels | disk[1].adds | disk[1].dels) ->
		SAY("*** the clock is set ahead\n"); faults--;
		disk[0].adds = 0; disk[0].dels = 0; disk[1].adds = 0; disk[1].dels = 0 }
#endif
#endif
	/* Properties. */
	:: atomic { QUIET && !SETTLED -> leaked = 1; assert(!leaked) }
	:: atomic { timeout && !QUIET -> stuck = 1; assert(!stuck) }
	od
}
