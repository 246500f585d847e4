/* Direct rounds as a model (docs/board.md): every interleaving of RANKS ranks that make CALLS calls each.
 *
 * A rank posts for a round, or does something else, as a rank that calls again before it waits, or that leaves: then it
 * takes the open round over first, and the round goes on on the board. Of the board there is no more than who has
 * contributed to its round; board.pml has the rest.
 *
 * Names are those of csrc/services/partial_allreduce (board_posts.cc, direct_calls.cc, local_rounds.cc, board_wait.cc)
 * and csrc/node/event_count.h. A step is one access to a word that others access without the mutex: the tags,
 * `closed`, `completed`, and the event count's `rings` and `waiters`. What only the mutex guards is accessed with the
 * step before it. Reading the posts takes two steps, its begin and its end; a write is one, and fails if somebody is
 * reading.
 *
 *   -DRANKS=3 -DCALLS=2   how many ranks, and calls of each
 *   -DLEAVES              a rank may leave for good instead of a call
 *   -DMUTANT=name         breaks the protocol on purpose; the names are below
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#define FREE 255
#define EVERYBODY ((1 << RANKS) - 1)

#ifdef MUTANT
#define MUTATED(name) (MUTANT == name)
#else
#define MUTANT 0
#define MUTATED(name) false
#endif
#define CLOSED_LATE 1      /* take_over_posts: closes the posts after it has looked for them */
#define POST_UNCHECKED 2   /* contribute_directly: does not look whether the posts are closed */
#define UNMARKED 3         /* take_post: does not mark what it takes */
#define LAST_LOOK 4        /* state: does not look at the own post again */
#define SLEEP_UNCHECKED 5  /* wait_unless: does not look again once others can see it */
#define RINGS_FIRST 6      /* ring_if_awaited: before the post */
#define ONE_PLACE 7        /* a rank posts to the same place in every round */

#define PLACES (MUTATED(ONE_PLACE) -> 1 : 2)
#define AT(rank, round) (2 * (rank) + (round) % PLACES)
#define POSTED(round) (2 * ((round) + 1))
#define TAKEN(round) (POSTED(round) + 1)

/* BoardPosts */
bool closed;
byte tag[2 * RANKS];
byte data[2 * RANKS];       /* of which round, + 1 */
byte readers[2 * RANKS];

/* The board: under the mutex, but for `completed`. */
byte mutex = FREE;
byte completed;
byte contributed;           /* sets of ranks */
byte left;

/* EventCount, as in board.pml */
byte rung = EVERYBODY;
byte waiters;
byte asleep;

/* What the properties are stated with. */
mtype = {unknown, direct, boarded};
mtype outcome[CALLS + 1] = unknown;
byte given[CALLS + 1];
byte finished;

mtype = {open, complete, taken_over, undecided};

#define ME (1 << me)
#define IS_IN(set, rank) (((set) >> (rank)) & 1)

inline lock()   { atomic { mutex == FREE -> mutex = me } }
inline unlock() { mutex = FREE }

inline all_posted(number) {              /* one load after the other */
  all = true;
  i = 0;
  do
  :: atomic { i < RANKS && all -> all = (tag[AT(i, number)] == POSTED(number)); i++ }
  :: atomic { !(i < RANKS && all) -> i = 0; break }
  od
}

inline state_of_round() {                /* BoardPosts::state */
  if
  :: atomic { tag[AT(me, round)] == TAKEN(round) -> state = taken_over }
  :: atomic { tag[AT(me, round)] != TAKEN(round) -> skip };
    all_posted(round);
    if
    :: atomic { closed && !MUTATED(POST_UNCHECKED) -> state = undecided }
    :: atomic { !closed || MUTATED(POST_UNCHECKED) -> state = open };
      if
      :: !all
      :: atomic { all && (tag[AT(me, round)] == POSTED(round) || MUTATED(LAST_LOOK)) -> state = complete }
      :: atomic { all && tag[AT(me, round)] != POSTED(round) && !MUTATED(LAST_LOOK) -> state = taken_over }
      fi
    fi
  fi;
  all = false
}

inline decided() {                       /* BoardPosts::decided, with the mutex */
  if
  :: atomic { tag[AT(me, round)] == TAKEN(round) -> state = taken_over }
  :: atomic { tag[AT(me, round)] != TAKEN(round) -> skip };
    all_posted(round);
    if :: all -> state = complete :: else -> state = open fi
  fi;
  all = false
}

inline take_over_posts() {               /* LocalRounds::take_over_posts, with the mutex */
  if
  :: closed
  :: !closed ->
    if :: MUTATED(CLOSED_LATE) :: else -> closed = true fi;
    number = completed;                  /* BoardPosts::close: from this rank's newest post */
    i = (tag[2 * me] > tag[2 * me + 1] -> tag[2 * me] : tag[2 * me + 1]) / 2;
    if
    :: i > 0 && i - 1 >= number ->
      number = i - 1;
      all_posted(number);
      if :: all -> number++ :: else fi
    :: else
    fi;
    completed = number;                  /* count_to */
    i = 0;
    do
    :: atomic { i < RANKS && tag[AT(i, number)] == POSTED(number) ->  /* take_post */
        if :: MUTATED(UNMARKED) :: else -> tag[AT(i, number)] = TAKEN(number) fi;
        assert(data[AT(i, number)] == number + 1);
        assert(!IS_IN(contributed, i));
        contributed = contributed | (1 << i);
        i++
      }
    :: atomic { i < RANKS && tag[AT(i, number)] != POSTED(number) -> i++ }
    :: atomic { i == RANKS -> i = 0; number = 0; all = false; break }
    od;
    if :: MUTATED(CLOSED_LATE) -> closed = true :: else fi
  fi
}

inline complete_round() {                /* LocalRounds::run, with the mutex: if nobody is awaited */
  if
  :: (contributed | left) != EVERYBODY || contributed == 0
  :: else ->
    atomic {
      assert(outcome[completed] == unknown);  /* agreement */
      outcome[completed] = boarded;
      contributed = 0;
      completed++
    };
    rung = EVERYBODY;                    /* EventCount::ring */
    if
    :: atomic { waiters > 0 -> asleep = 0 }
    :: waiters == 0
    fi;
    if :: left == 0 -> closed = false :: else fi
  fi
}

inline ring_if_awaited() {
  if
  :: waiters > 0 -> rung = EVERYBODY; asleep = 0
  :: waiters == 0
  fi
}

inline fall_asleep() {
  atomic {                               /* FUTEX_WAIT: compares and falls asleep in one step */
    if :: !IS_IN(rung, me) -> asleep = asleep | ME :: else fi;
    rung = rung | ME
  };
  !IS_IN(asleep, me)
}

proctype Rank(byte me) {
  byte call, round, i, number;
  bool all, posts;
  mtype state = unknown;

  do
  :: call < CALLS ->
    round = call;
    posts = false;
    if
#ifdef LEAVES
    :: lock(); take_over_posts(); left = left | ME; complete_round(); unlock(); break
#endif
    :: true                              /* by the board, for a reason of its own */
    :: !closed ->                        /* may_contribute_directly */
      if
      :: completed > round
      :: completed <= round ->           /* contribute_directly */
        atomic {
          assert(readers[AT(me, round)] == 0);  /* stability */
          data[AT(me, round)] = round + 1
        };
        if :: MUTATED(RINGS_FIRST) -> ring_if_awaited() :: else fi;
        tag[AT(me, round)] = POSTED(round);
        posts = true;
        state_of_round();
        if
        :: state == undecided ->
          lock();
          decided();
          if :: state == open -> tag[AT(me, round)] = TAKEN(round); posts = false :: else fi;
          unlock()
        :: else
        fi;
        if
        :: state == complete && posts && !MUTATED(RINGS_FIRST) -> ring_if_awaited()
        :: else
        fi
      fi
    fi;

    if
    :: !posts ->                         /* hand_over, and what follows */
      lock();
      take_over_posts();
      assert(completed == round && !IS_IN(contributed, me));
      contributed = contributed | ME;
      complete_round();
      unlock();
      state = taken_over
    :: posts                             /* it waits */
    :: posts && state != complete && state != taken_over ->  /* or it calls again before that */
      lock();
      take_over_posts();
      complete_round();                  /* the last post may have come meanwhile; the call goes on to run_rounds */
      unlock();
      state = open
    fi;

    /* ---- PartialAllreduce::wait */
    do
    :: state == complete -> break
    :: state == taken_over ->
      rung = rung & ~ME;
      if
      :: completed > round -> break
      :: completed <= round -> waiters++; fall_asleep(); waiters--
      fi
    :: state == undecided ->
      lock();
      decided();
      unlock();
      assert(state != open)              /* or the call would look again and again */
    :: state == open ->
      rung = rung & ~ME;
      state_of_round();                  /* try_finish_directly */
      if
      :: state != open
      :: state == open ->
        waiters++;                       /* wait_unless */
        if :: MUTATED(SLEEP_UNCHECKED) :: else -> state_of_round() fi;
        if
        :: state == open -> fall_asleep()
        :: else
        fi;
        waiters--
      fi
    od;
    rung = rung | ME;

    if
    :: state == complete ->              /* Results::give_directly */
      atomic {
        assert(outcome[round] != boarded);  /* agreement */
        outcome[round] = direct;
        i = 0;
        do :: i < RANKS -> readers[AT(i, round)]++; i++ :: else -> i = 0; break od
      };
      atomic {
        do
        :: i < RANKS ->
          assert(data[AT(i, round)] == round + 1);  /* exactness */
          readers[AT(i, round)]--;
          i++
        :: else -> i = 0; break
        od
      }
    :: else -> assert(outcome[round] == boarded)
    fi;
    atomic { given[round]++; state = unknown; call++ }
  :: call == CALLS -> break
  od;

  atomic {
    finished++;
    if
    :: finished == RANKS ->
      assert(contributed == 0 && waiters == 0);
      i = 0;
      do :: i < CALLS -> assert(left != 0 || given[i] == RANKS); i++ :: else -> break od
    :: else
    fi
  }
}

init {
  byte rank;
  atomic {
    do :: rank < RANKS -> run Rank(rank); rank++ :: else -> break od
  }
}
