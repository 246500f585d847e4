/* The board of a node as a model (docs/board.md): every interleaving of RANKS ranks that make CALLS calls each.
 *
 * Names are those of csrc/services/partial_allreduce (board_*.cc, joint_*.cc, local_rounds.cc, partial_allreduce.cc) and
 * csrc/node/event_count.h; the comment at a step says which function it is.
 *
 * Steps. A step (`atomic`, or a statement outside of one) is a critical section, or one access to a word that others
 * access without the mutex: `completed`, `cursor`, `segments_done`, and the event count's `rings` and `waiters`. A critical
 * section that accesses several of these is several steps, unless all but one read what does not change any more.
 * Reading a buffer that others know takes two steps, its begin and its end, and others go on between them; a write is
 * one, and fails if somebody is reading.
 *
 * Data are symbols: a contribution is one bit, the content of a segment the set of contributions reduced into it.
 *
 * Counters that are only compared with an earlier value, the rings and the number of the batch, are kept as the set of
 * ranks for which they have changed since.
 *
 * The ranks are alike, so their first calls come in the order of their numbers. (Not quite alike, a round takes
 * deposits in that order; but which of them becomes `sum` makes no difference to anybody.)
 *
 *   -DRANKS=3 -DCALLS=2   how many ranks, and calls of each; at most 8 calls in all
 *   -DFULL                a started round is held for ranks that lack data and takes what they bring at once (policy
 *                         Full, max_staleness=0); else Solo. In both, whoever arrives starts the round
 *   -DJOINS               with FULL: a rank reduces its data into the sum by itself where it may. It may also bring a
 *                         deposit, as one does that could not join when it called
 *   -DCLAIM_IN_ONE        the cursor is loaded and swapped in one step. The same, with fewer states: a swap that fails
 *                         leaves no trace, and one that succeeds might as well have loaded just before
 *   -DMUTANT=name         breaks the protocol on purpose; the names are below
 */

#ifndef RANKS
#define RANKS 3
#endif
#ifndef CALLS
#define CALLS 2
#endif
#define SEGMENTS 2
#define ROUNDS (RANKS * CALLS)        /* at most: no round starts without an arrival */
#ifdef JOINS
#define SPARE_SUMS (RANKS + 2)        /* enough, which is checked */
#else
#define SPARE_SUMS 2
#endif
#define BUFFERS (RANKS * CALLS + SPARE_SUMS)
#define NONE 255                      /* no buffer, no round */
#define FREE 255
#define EVERYBODY ((1 << RANKS) - 1)

#ifdef MUTANT
#define MUTATED(name) (MUTANT == name)
#else
#define MUTANT 0
#define MUTATED(name) false
#endif
#define BELL_LOOKS_FIRST 1       /* ring: looks for waiters before it counts the ring */
#define BELL_SEEN_LATE 2         /* wait_until: reads `rings` after it has looked, not before */
#define CURSOR_WITHOUT_CAS 3     /* help: a claim is a load and a store */
#define STALE_CLAIM 4            /* help: looks at the batch before its claim, and the cursor has no batch number */
#define IN_PLACE_ALWAYS 5        /* begin_batch: in place on a deposit that its owner reads */
#define LAST_STOPS 6             /* drive: who helped does not go on with the round */
#define FINISH_EARLY 7           /* finish_batch: does not wait for segments that others are at */
#define DEPOSIT_UNCHECKED 8      /* contribute: does not see that a round took what it added to */
#define RESULT_UNREFERENCED 9    /* collect: looks at a result without a reference */
#define PROMISE_FORGOTTEN 10     /* complete: does not keep the record that a waiting rank was promised */
#define PIECE_SHARED 11          /* JointSum: two ranks may be at the same piece */
#define BATCH_WHILE_ADDING 12    /* begin_batch: does not look whether ranks are adding */
#define COMPLETE_WHILE_ADDING 13 /* is_reduced: does not look whether ranks are adding */
#define LEFT_OVER_FORGOTTEN 14   /* finish_joining: what is left over is no input */
/* Not mutants, but variants that must pass as well. */
#define CURSOR_WITHOUT_NUMBER 20 /* the cursor has no batch number, all else is as it is */
#define EARLY_LOOK 21            /* help: looks at the batch before its claim; the cursor has the number */

/* The batch number makes a difference only to a helper that looks at the batch before its claim: the code does not. */
#define BATCH_NUMBERED (!MUTATED(STALE_CLAIM) && !MUTATED(CURSOR_WITHOUT_NUMBER))
#define LOOKS_EARLY (MUTATED(STALE_CLAIM) || MUTATED(EARLY_LOOK))

/* ---------------------------------------------------------------------------------------------------- shared memory */

/* The words that are accessed without the mutex. */
byte completed;                  /* rounds */
byte cursor;                     /* segments that nobody has claimed; the batch number in its upper half is this: */
byte cursor_moved = EVERYBODY;   /* for whom it is not the batch that they loaded */
byte segments_done;
byte rung = EVERYBODY;           /* EventCount: for whom `rings` is not what they have seen */
byte waiters;
byte asleep;                     /* the kernel's: who sleeps on `rings` */

/* BoardRound::State, BoardSlot and the buffers: under the mutex. */
byte mutex = FREE;               /* or the rank that holds it */
mtype = {armed, started, taken};           /* BoardRound::Phase */
mtype = {nothing, completes, reduces};     /* what a rank does next */
mtype phase = armed;
byte arrived;                    /* sets of ranks */
byte awaited;
byte deposit[RANKS] = NONE;
byte promised[RANKS] = NONE;     /* the round whose record is kept for this rank */
byte kept_round[RANKS] = NONE;
byte kept_buffer[RANKS] = NONE;
byte record_buffer = NONE;       /* of round completed - 1 */
byte sum = NONE;
bool sum_is_filled;
byte inputs;                     /* what has been taken, apart from what is in the batch: sets of buffers */
byte batch;                      /* what is being reduced into `sum` */
byte references[BUFFERS];
byte adding;                     /* ranks that reduce their own data into `sum` */

/* JointSum's words, without the mutex: sets of segments, here the pieces of the sum. */
byte busy;
byte filled_pieces;

/* A segment of a buffer. */
#define AT(buffer, segment) (SEGMENTS * (buffer) + (segment))
byte content[SEGMENTS * BUFFERS];

/* What the properties are stated with; the protocol does not look at it. */
byte readers[SEGMENTS * BUFFERS];  /* how many are reading this segment, or look at the result that it is of */
byte taking;                       /* contributions that the round under way has taken */
byte delivered;                    /* ... that completed rounds have taken */
byte result_of[ROUNDS];            /* ... by round, as long as somebody can be given it */
byte reduced;                      /* segments of the batch that have been reduced */
byte finished;
byte come;                         /* who has made a call */

/* Scratch within a step; not part of the state. */
hidden byte i, b;

#define ME (1 << me)
#define MINE (1 << (me * CALLS + call))  /* what it contributes */
#define IS_IN(set, rank) (((set) >> (rank)) & 1)

/* --------------------------------------------------------------------------------------- buffers (board_buffers.cc) */

inline lock()   { mutex == FREE; mutex = me }
inline unlock() { mutex = FREE }

/* A contribution has a buffer of its own, so that names do not depend on who came first. That a free buffer is used
 * again is not modelled: that it is free while somebody looks at it is an error by itself. */
inline take_spare(into) {
  into = me * CALLS + call;
  references[into] = 1
}

inline take_buffer(into) {               /* BoardBuffers::take */
  b = RANKS * CALLS;
  do
  :: b < BUFFERS && references[b] > 0 -> b++
  :: else -> break
  od;
  assert(b < BUFFERS);
  references[b] = 1;
  into = b
}

/* BoardBuffers::release. What lay in a buffer that is free is lost. */
inline release(buffer) {
  if
  :: buffer != NONE ->
    assert(references[buffer] > 0);
    references[buffer]--;
    if
    :: references[buffer] == 0 ->
      assert(readers[AT(buffer, 0)] == 0 && readers[AT(buffer, 1)] == 0);
      content[AT(buffer, 0)] = 0;
      content[AT(buffer, 1)] = 0
    :: else
    fi;
    buffer = NONE
  :: else
  fi
}

inline write(buffer, segment, what) {
  assert(references[buffer] > 0 && readers[AT(buffer, segment)] == 0);  /* stability */
  content[AT(buffer, segment)] = what
}

inline begin_to_read(buffer) { readers[AT(buffer, 0)]++; readers[AT(buffer, 1)]++ }
inline end_to_read(buffer)   { readers[AT(buffer, 0)]--; readers[AT(buffer, 1)]-- }

inline let_go(looked_at) {
  end_to_read(looked_at);
  if :: MUTATED(RESULT_UNREFERENCED) :: else -> release(looked_at) fi
}

/* ------------------------------------------------------------------------------------ event count (event_count.h) */

inline count_ring() { rung = EVERYBODY }

/* What a ringer does next belongs to the last step of it: it goes on to reduce, or leaves the critical section. */
inline rung_it() {
  began = false;
  if
  :: next == completes -> unlock(); next = nothing
  :: else
  fi
}

inline ring() {
#if MUTANT == BELL_LOOKS_FIRST
  if
  :: waiters > 0 -> count_ring(); atomic { asleep = 0; rung_it() }
  :: else -> atomic { count_ring(); rung_it() }
  fi
#else
  count_ring();
  if
  :: atomic { waiters > 0 -> skip }; atomic { asleep = 0; rung_it() }  /* FUTEX_WAKE */
  :: atomic { waiters == 0 -> rung_it() }
  fi
#endif
}

inline see_rings() { rung = rung & ~ME }

/* EventCount::wait, without its time limit: a wake-up that is lost is lost for good. */
inline sleep() {
  waiters++;
  atomic {                                 /* FUTEX_WAIT: compares and falls asleep in one step */
    if :: !IS_IN(rung, me) -> asleep = asleep | ME :: else fi;
    rung = rung | ME
  };
  atomic { !IS_IN(asleep, me) -> waiters-- }
}

/* ------------------------------------------------------------------- the round, under the mutex (board_round.cc) */

inline take(rank) {
  if
  :: deposit[rank] != NONE ->
    assert(content[AT(deposit[rank], 0)] == content[AT(deposit[rank], 1)]);
    taking = taking | content[AT(deposit[rank], 0)];
    inputs = inputs | (1 << deposit[rank]);
    deposit[rank] = NONE
  :: else
  fi
}

inline settle() {
  if :: awaited == 0 -> phase = taken :: else fi
}

inline start() {
  phase = started;
  arrived = 0;
  i = 0;
  do
  :: i < RANKS ->
    if
#ifdef FULL
    :: deposit[i] == NONE -> awaited = awaited | (1 << i)
#endif
    :: else -> take(i)
    fi;
    i++
  :: else -> break
  od;
  settle()
}

inline take_own() {
  awaited = awaited & ~ME;
  take(me);
  settle()
}

#define ONE(set) (((set) & ((set) - 1)) == 0)  /* it has one member, or none */
#define ALONE(buffer) (references[buffer] == 1 || (phase == taken && ONE(inputs)) || MUTATED(IN_PLACE_ALWAYS))

/* `began`: whether there is something to reduce together now. Which of several deposits is reduced into makes no
 * difference to anybody: the first. */
inline begin_batch() {
  if
  :: batch != 0 || (adding != 0 && !MUTATED(BATCH_WHILE_ADDING)) || inputs == 0 || (phase != taken && ONE(inputs) && sum == NONE) -> began = false
  :: else ->
    if
    :: sum == NONE ->
      b = 0;                               /* in place on a deposit that its owner does not read, or the only one */
      do
      :: b < RANKS * CALLS && !(IS_IN(inputs, b) && ALONE(b)) -> b++
      :: else -> break
      od;
      sum_is_filled = b < RANKS * CALLS;
      if
      :: sum_is_filled -> sum = b; inputs = inputs & ~(1 << b)
      :: else -> take_buffer(sum)
      fi
    :: else
    fi;
    if
    :: inputs == 0 -> began = false
    :: else ->
      batch = inputs;
      inputs = 0;
      segments_done = 0;
      cursor_moved = EVERYBODY;
      cursor = SEGMENTS;
      began = true
    fi
  fi
}

/* For each buffer `b` of the batch. */
#define FOR_BATCH b = 0; do :: b < RANKS * CALLS -> if :: IS_IN(batch, b) ->
#define END_BATCH :: else fi; b++ :: else -> break od

inline finish_batch() {
  if
  :: batch != 0 && (segments_done == SEGMENTS || (MUTATED(FINISH_EARLY) && cursor == 0)) ->
    assert(reduced == (1 << SEGMENTS) - 1);  /* no segment was skipped */
    reduced = 0;
    FOR_BATCH i = b; release(i) END_BATCH;
    batch = 0;
    sum_is_filled = true
  :: else
  fi
}

/* What `complete` does before it rings; storing `completed` is the last of it. */
inline publish_and_rearm() {
  assert(phase == taken && inputs == 0 && awaited == 0);
  assert(content[AT(sum, 0)] == taking && content[AT(sum, 1)] == taking);  /* exactness */
  assert(taking != 0 && (taking & delivered) == 0);                        /* conservation */
  delivered = delivered | taking;
  result_of[completed] = taking;
  taking = 0;
  i = 0;               /* evict_oldest: the record that makes room is kept for those it was promised to */
  b = 0;
  do
  :: i < RANKS ->
    if
    :: completed > 0 && promised[i] == completed - 1 && !MUTATED(PROMISE_FORGOTTEN) ->
      release(kept_buffer[i]);
      kept_round[i] = promised[i];
      kept_buffer[i] = record_buffer;
      references[record_buffer]++;
      b++
    :: else
    fi;
    i++
  :: else -> break
  od;
  if :: completed > 0 && b == 0 -> result_of[completed - 1] = 0 :: else fi;  /* nobody can be given it any more */
  release(record_buffer);
  record_buffer = sum;
  sum = NONE;
  sum_is_filled = false;
  phase = armed;
  completed++
}

/* ----------------------------------------------------------------------------- the reduction, without the mutex */

#define segment (left - 1)
#define CLAIMED ((cursor == left && !(BATCH_NUMBERED && IS_IN(cursor_moved, me))) || MUTATED(CURSOR_WITHOUT_CAS))

inline look_at_batch() { into = sum; filled = sum_is_filled; many = batch }

inline begin_segment() {
  assert(many != 0);                       /* what was claimed is there */
  value = (filled -> content[AT(into, segment)] : 0);
  b = 0;
  do
  :: b < RANKS * CALLS ->
    if
    :: IS_IN(many, b) ->
      assert((value & content[AT(b, segment)]) == 0);  /* nothing twice */
      value = value | content[AT(b, segment)];
      readers[AT(b, segment)]++
    :: else
    fi;
    b++
  :: else -> break
  od
}

inline end_segment() {
  assert(into == sum && filled == sum_is_filled && many == batch);  /* the batch does not change meanwhile */
  FOR_BATCH readers[AT(b, segment)]-- END_BATCH;
  assert(!IS_IN(reduced, segment));        /* no segment is reduced twice */
  reduced = reduced | (1 << segment);
  write(into, segment, value);
  value = 0; into = 0; filled = false; many = 0; left = 0
}

/* BoardRound::help: claims segments through the cursor and reduces them. `helped`: whether there was any. */
inline help() {
  helped = false;
  do
  :: cursor == 0 -> break
#ifdef CLAIM_IN_ONE
  :: atomic { cursor > 0 ->
      left = cursor;
      cursor = segment;
      helped = true;
      look_at_batch();
      begin_segment()
    };
    atomic { end_segment(); segments_done++ }
#else
  :: atomic { cursor > 0 ->                /* load */
      left = cursor;
      cursor_moved = cursor_moved & ~ME;
      if :: LOOKS_EARLY -> look_at_batch() :: else fi
    };
    if
    :: atomic { CLAIMED ->                 /* compare and swap; reduce_segment begins */
        cursor = segment;
        cursor_moved = cursor_moved | ME;
        helped = true;
        if :: LOOKS_EARLY :: else -> look_at_batch() fi;
        begin_segment()
      };
      atomic { end_segment(); segments_done++ }
    :: atomic { !CLAIMED -> left = 0; cursor_moved = cursor_moved | ME }
    fi
#endif
  od
}

/* --------------------------------------------------------------------- rounds (local_rounds.cc, board_round.cc) */

/* BoardRound::work until it releases the mutex, and BoardRound::complete until its ring. One step, with the mutex held;
 * `next` is what follows. It reads `segments_done`, and stores `cursor` or `completed`: one step all the same, because
 * what it reads is either final or the last that it does. */
inline work() {
  finish_batch();
  if
  :: phase != taken -> next = nothing; unlock()  /* nothing has been started, or it waits for somebody's data */
  :: else ->
    begin_batch();
    if
    :: batch == 0 && (adding == 0 || MUTATED(COMPLETE_WHILE_ADDING)) ->
      publish_and_rearm();                 /* all of it is in `sum` */
      next = completes
    :: batch == 0 && adding != 0 && !MUTATED(COMPLETE_WHILE_ADDING) ->
      next = nothing;                      /* ranks are adding: the last of them goes on */
      unlock()
    :: batch != 0 -> next = reduces; unlock()
    fi
  fi
}

/* PartialAllreduce::run_rounds and LocalRounds::run, of a node that is alone: its first critical section. */
inline run_rounds() {
  if
  :: phase == started && IS_IN(awaited, me) && deposit[me] != NONE -> take_own()
  :: else
  fi;
  if
  :: phase == armed && arrived != 0 -> start()
  :: else
  fi;
  work()
}

/* ... and what comes after it. */
inline go_on() {
  do
  :: next == nothing -> break
  :: next == completes -> ring()
  :: next == reduces ->
    if
    :: began -> ring()                     /* who waits may help */
    :: else
    fi;
    help();
    atomic {
      lock();
      if
      :: helped -> helped = false; work()
      :: else -> next = nothing; unlock()  /* others are at it: the last of them goes on */
      fi
    }
  od
}

#ifdef JOINS
/* --------------------------------------------------------------------- joining (joint_calls.cc, joint_sum.cc) */

/* PartialAllreduce::may_join: it is not late, and its data is taken at once. */
#define ACCOUNTED (promised[me] != NONE && completed > promised[me] && accounted <= promised[me] -> promised[me] + 1 : accounted)
#define MAY_JOIN (deposit[me] == NONE && completed <= ACCOUNTED && \
                  (phase == armed || (phase == started && IS_IN(awaited, me) && batch == 0)))

inline join() {
  if
  :: sum == NONE -> take_buffer(sum); sum_is_filled = false; filled_pieces = 0
  :: else
  fi;
  if
  :: adding == 0 && sum_is_filled -> filled_pieces = (1 << SEGMENTS) - 1
  :: else
  fi;
  adding++;
  awaited = awaited & ~ME;
  taking = taking | MINE;
  settle();
  missing = (1 << SEGMENTS) - 1
}

#define FREE_PIECE(piece) (IS_IN(missing, piece) && (!IS_IN(busy, piece) || MUTATED(PIECE_SHARED)))

/* JointSum::try_add: two steps. */
inline add_to(piece) {
  busy = busy | (1 << piece);
  value = (IS_IN(filled_pieces, piece) -> content[AT(sum, piece)] : 0);
  assert((value & MINE) == 0);             /* nothing twice */
  left = piece + 1
}

inline added() {
  assert(IS_IN(busy, segment) || MUTATED(PIECE_SHARED));
  write(sum, segment, value | MINE);
  filled_pieces = filled_pieces | (1 << segment);
  busy = busy & ~(1 << segment);
  missing = missing & ~(1 << segment);
  value = 0;
  left = 0
}

/* JointSum::copy_left_over and BoardRound::finish_joining: the copy has nothing of what has been added. */
inline finish_joining() {
  adding--;
  if :: adding == 0 -> sum_is_filled = true :: else fi;
  if
  :: missing != 0 && !MUTATED(LEFT_OVER_FORGOTTEN) ->
    take_spare(spare);
    if :: IS_IN(missing, 0) -> write(spare, 0, MINE) :: else fi;
    if :: IS_IN(missing, 1) -> write(spare, 1, MINE) :: else fi;
    inputs = inputs | (1 << spare);
    spare = NONE
  :: else
  fi;
  missing = 0
}
#endif

/* Results::collect and PartialAllreduce::promise_kept: a reference to the result of the round. */
inline collect() {
  assert(round >= given);
  if
  :: round == completed - 1 -> fresh = record_buffer
  :: else -> assert(kept_round[me] == round); fresh = kept_buffer[me]
  fi;
  assert(content[AT(fresh, 0)] == result_of[round] && content[AT(fresh, 1)] == result_of[round]);  /* agreement */
  if :: MUTATED(RESULT_UNREFERENCED) :: else -> references[fresh]++ fi;
  begin_to_read(fresh);
  promised[me] = NONE;
  given = round + 1;
  if :: accounted < given -> accounted = given :: else fi;
  if :: kept_round[me] < given -> kept_round[me] = NONE; release(kept_buffer[me]) :: else fi
}

/* Results::publish: what the application looked at before is let go. */
inline publish() {
  if :: result != NONE -> let_go(result) :: else fi;
  result = fresh;
  fresh = NONE
}

proctype Rank(byte me) {
  byte call, round, given, accounted;
  bool late;
  byte spare = NONE, earlier = NONE, result = NONE, fresh = NONE;
  mtype next = nothing;
  bool began, helped, claims, patient;
  byte left, into, many, value, missing;
  bool filled;

/* The first calls come in this order. */
#define MY_TURN (come == (1 << me) - 1 || IS_IN(come, me))

  do
  :: call < CALLS ->

    /* ---- PartialAllreduce::contribute */
    if
    :: atomic { deposit[me] != NONE && mutex == FREE ->  /* what lies there is added to */
        take_spare(spare);
        earlier = deposit[me];
        references[earlier]++;             /* to read it; a round may take it meanwhile */
        begin_to_read(earlier)
      };
      atomic {
        end_to_read(earlier);
        write(spare, 0, MINE | content[AT(earlier, 0)]);
        write(spare, 1, MINE | content[AT(earlier, 1)])
      };
      atomic {
        lock();
        if
        :: deposit[me] == earlier || MUTATED(DEPOSIT_UNCHECKED) -> release(earlier)
        :: else ->                         /* a round has taken it: what is handed over is the new data alone */
          release(earlier);
          unlock();
          write(spare, 0, MINE);
          write(spare, 1, MINE)
        fi
      }
#ifdef JOINS
    :: atomic { mutex == FREE && MY_TURN && MAY_JOIN ->  /* contribute_jointly */
        lock();
        come = come | ME;
        accounted = ACCOUNTED;
        round = completed;
        promised[me] = round;
        late = false;
        if :: phase == armed -> arrived = arrived | ME; start() :: else fi;
        join();
        unlock()
      };
      do
      :: missing == 0 -> break
      :: atomic { FREE_PIECE(me % SEGMENTS) -> add_to(me % SEGMENTS) }; atomic { added() }
      :: atomic { !FREE_PIECE(me % SEGMENTS) && FREE_PIECE(1 - me % SEGMENTS) -> add_to(1 - me % SEGMENTS) };
        atomic { added() }
      :: atomic { missing != 0 && !FREE_PIECE(0) && !FREE_PIECE(1) -> break }  /* left over, as soon as it might be */
      od;
      atomic {
        lock();
        finish_joining();
        call++;
        run_rounds()
      };
      goto handed_over
#endif
    :: atomic { deposit[me] == NONE && mutex == FREE && MY_TURN ->  /* stays so: no step of its own */
        lock();
        take_spare(spare);
        write(spare, 0, MINE);
        write(spare, 1, MINE);
        come = come | ME
      }
    fi;

    /* ---- hand_over, arrive, and what follows from them */
    atomic {
      if :: mutex != me -> lock() :: else fi;
      if
      :: promised[me] != NONE && completed > promised[me] ->  /* promise_kept */
        if :: accounted < promised[me] + 1 -> accounted = promised[me] + 1 :: else fi
      :: else
      fi;
      release(deposit[me]);
      deposit[me] = spare;
      spare = NONE;
      late = completed > accounted;
      round = (late -> completed - 1 : completed);
      promised[me] = round;
      if
      :: late && given == accounted -> collect()  /* it is given the newest result at once */
      :: late && given != accounted -> accounted = completed
      :: else ->
        if :: phase == armed -> arrived = arrived | ME :: else fi
      fi;
      call++;
      run_rounds()
    };
handed_over:
    go_on();
    if
    :: fresh != NONE -> atomic { lock(); publish(); unlock() }
    :: else
    fi;

    /* ---- PartialAllreduce::wait. Or the application calls again first, if it is to call again */
    if
    :: call < CALLS || round < given
    :: round >= given ->
      if
      :: completed > round                 /* try_finish: it is done */
      :: else ->
        do
        :: see_rings();
          help();                          /* drive */
          if
          :: atomic { helped ->
              helped = false;
              if
              :: MUTATED(LAST_STOPS)
              :: else -> lock(); run_rounds()
              fi
            };
            go_on()
          :: !helped
#ifdef FULL
          :: atomic { !helped && !patient && phase == started && mutex == FREE ->
              patient = true;              /* it has looked often enough: reduces what has been taken so far */
              begin_batch();
              began = false
            }
#endif
          fi;
          if
          :: completed > round -> break    /* try_finish */
          :: else ->
            assert(!late);                 /* a late call waits for nothing */
            if :: MUTATED(BELL_SEEN_LATE) -> see_rings() :: else fi;
            sleep()
          fi
        od
      fi;

      atomic {                             /* try_finish */
        lock();
        patient = false;
        late = false;
        rung = rung | ME;
        collect();
        publish();
        unlock()
      }
    fi
  :: else -> break
  od;

  atomic {                                 /* the application lets its result go */
    lock();
    if :: result != NONE -> let_go(result) :: else fi;
    round = 0; given = 0; accounted = 0; late = false;
    finished++;
    unlock();
    if
    :: finished == RANKS ->                /* everybody has returned: what no round took lies where it was hung up */
      assert(phase == armed && taking == 0 && batch == 0 && cursor == 0 && waiters == 0 && adding == 0);
      i = 0;
      do
      :: i < RANKS ->
        if
        :: deposit[i] != NONE ->
          assert((delivered & content[AT(deposit[i], 0)]) == 0);
          delivered = delivered | content[AT(deposit[i], 0)]
        :: else
        fi;
        i++
      :: else -> break
      od;
      assert(delivered == (1 << (RANKS * CALLS)) - 1)  /* conservation: nothing is lost */
    :: else
    fi
  }
}

init {
  atomic {
    i = 0;
    do
    :: i < RANKS -> run Rank(i); i++
    :: else -> break
    od
  }
}
