/* mirror_words — the records by which a host publishes its ranks' slots of the control area.
 *   idea  : a record for each unit that a rank writes: an arrival with its announcement and message, a flight ring's
 *           entry, the positions of a ring and a log, the counts of messages, presence, and the reason why the group is
 *           broken. The last version sent is kept, so that only changes are sent
 *   cost  : a small operation costs a record per rank and host, of 72 bytes and the message. A heartbeat compares some
 *           hundred kilobytes per rank, most of which are never touched
 *   order : a rank sees others' writes in the order in which they were made: records are applied in order, and the
 *           values written last (an arrival's step, counts, presence) are read first here and sent last. An arrival
 *           does not change while it is read: its rank reuses the place two steps later, after all hosts have answered
 *           the step between, for which they needed this one. An entry of a ring may change: its number shows that,
 *           here as for all its readers
 *   fails : data from the network are checked before they are written: a host writes to its own ranks' slots only */
#include "common/comm/mirror.h"

#include <stdlib.h>
#include <string.h>

#include "common/comm/wait.h"

enum { ENTRY_WORDS = 8, LABEL_WORDS = LS_FLIGHT_LABEL / sizeof(uint64_t) };
_Static_assert(sizeof(ls_flight_entry) == ENTRY_WORDS * sizeof(uint64_t), "an entry is words");

enum record_kind {
    RECORD_BEAT,     /* nothing */
    RECORD_ARRIVAL,  /* ls_arrival up to the end of its message */
    RECORD_ENTRY,    /* struct entry_words */
    RECORD_RING,     /* struct ring_words */
    RECORD_MESSAGES, /* struct message_words */
    RECORD_LOG,      /* struct log_words */
    RECORD_PRESENCE, /* struct presence_words */
    RECORD_BROKEN    /* struct broken_words */
};

/* Before each record's data. */
struct record {
    uint32_t nbytes;
    uint8_t kind, rank; /* the group's rank; of a log, a ring and an entry the job's */
    uint8_t index;      /* the channel or ring */
    uint8_t place;      /* of an entry */
};

struct entry_words {
    uint64_t entry[ENTRY_WORDS], label[LABEL_WORDS];
};

struct ring_words {
    uint64_t collectives, hash;
    ls_flight_group group;
};

struct message_words {
    uint64_t sends[LS_COMM_MAX_RANKS], receives[LS_COMM_MAX_RANKS];
};

struct log_words {
    uint64_t enqueued;
    int64_t looked_ms;
    int32_t pid, left, ring_count;
};

struct presence_words {
    int32_t pid, left, awaits;
    uint32_t awaited_value;
};

struct broken_words {
    int32_t status, rank;
    char reason[LS_REASON_CAPACITY];
};

struct ls_mirror_shadow {
    uint64_t step[LS_CHANNEL_COUNT][2];
    struct presence_words presence;
    struct message_words messages;
    struct log_words log;
    struct {
        struct ring_words words;
        struct entry_words entries[LS_FLIGHT_KEPT];
    } rings[LS_FLIGHT_GROUPS];
};

/* --- bytes -------------------------------------------------------------------------------------------------------- */

void ls_bytes_add(ls_bytes *b, const void *data, size_t nbytes) {
    if (b->used + nbytes > b->capacity && !b->failed) {
        size_t capacity = 2 * (b->used + nbytes) + LS_PAGE_BYTES;
        unsigned char *at = realloc(b->at, capacity);
        b->failed = !at;
        if (at) b->at = at;
        if (at) b->capacity = capacity;
    }
    if (b->failed || nbytes == 0) return;
    memcpy(b->at + b->used, data, nbytes);
    b->used += nbytes;
}

void ls_bytes_drop(ls_bytes *b, size_t nbytes) {
    b->used -= nbytes;
    if (b->used > 0 && nbytes > 0) memmove(b->at, b->at + nbytes, b->used);
}

static void add(struct ls_mirror *m, struct record record, const void *data, size_t nbytes) {
    record.nbytes = (uint32_t)nbytes;
    ls_bytes_add(&m->batch, &record, sizeof record);
    ls_bytes_add(&m->batch, data, nbytes);
}

void ls_mirror_add_beat(struct ls_mirror *m) { add(m, (struct record){.kind = RECORD_BEAT}, NULL, 0); }

/* Adds the record if its data differ from the last version sent. */
static void add_change(struct ls_mirror *m, struct record record, const void *now, void *last, size_t nbytes) {
    if (memcmp(now, last, nbytes) == 0) return;
    memcpy(last, now, nbytes);
    add(m, record, now, nbytes);
}

ls_status ls_mirror_make_shadow(struct ls_mirror *m) {
    m->shadow = calloc((size_t)m->comm->world_size, sizeof *m->shadow);
    return m->shadow ? LS_OK : LS_ERR_NO_MEMORY;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* Bytes of ls_arrival that an operation of one round uses. */
static size_t arrival_nbytes(const ls_comm *comm, ls_channel_kind channel, const ls_announcement *what) {
    size_t nbytes = channel == LS_CHANNEL_STREAM ? ls_published_nbytes(comm, what) : 0;
    bool elsewhere = nbytes <= sizeof((ls_arrival *)0)->brief || nbytes > LS_EAGER_BYTES;
    return offsetof(ls_arrival, message) + (elsewhere ? 0 : nbytes);
}

static void collect_arrivals(struct ls_mirror *m, int rank) {
    for (int channel = 0; channel < LS_CHANNEL_COUNT; channel++) {
        for (uint64_t parity = 0; parity < 2; parity++) {
            ls_arrival *arrival = ls_segment_arrival(m->comm, (ls_channel_kind)channel, rank, parity);
            uint64_t step = atomic_load(&arrival->step);
            if (step == m->shadow[rank].step[channel][parity]) continue;
            m->shadow[rank].step[channel][parity] = step;
            add(m, (struct record){.kind = RECORD_ARRIVAL, .rank = (uint8_t)rank, .index = (uint8_t)channel}, arrival,
                arrival_nbytes(m->comm, (ls_channel_kind)channel, &arrival->announced));
        }
    }
}

static struct presence_words presence_of(const ls_comm *comm, int rank) {
    ls_rank_slot *slot = &comm->segment->slot[rank];
    return (struct presence_words){.left = atomic_load(&slot->left),
                                   .pid = atomic_load(&slot->pid),
                                   .awaits = atomic_load(&slot->awaits),
                                   .awaited_value = atomic_load(&slot->awaited_value)};
}

/* False if the entry is being written; the next heartbeat sends it. */
static bool read_entry(const ls_flight_ring *ring, int place, struct entry_words *out) {
    const ls_flight_entry *entry = &ring->entries[place];
    out->entry[0] = atomic_load(&entry->number);
    if (out->entry[0] == 0) return false;
    for (int i = 0; i < LS_STAMP_COUNT; i++) out->entry[1 + i] = atomic_load(&entry->stamp[i]);
    out->entry[4] = atomic_load(&entry->sequence);
    out->entry[5] = atomic_load(&entry->count);
    out->entry[6] = atomic_load(&entry->received);
    out->entry[7] = atomic_load(&entry->kinds);
    for (int i = 0; i < LABEL_WORDS; i++) out->label[i] = atomic_load(&ring->labels[place][i]);
    return atomic_load(&entry->number) == out->entry[0];
}

static void collect_ring(struct ls_mirror *m, int rank, int index, const ls_flight_ring *ring) {
    struct ls_mirror_shadow *shadow = &m->shadow[rank];
    struct record record = {.kind = RECORD_ENTRY, .rank = (uint8_t)rank, .index = (uint8_t)index};
    struct ring_words words;
    memset(&words, 0, sizeof words); /* also the padding, which is compared, too */
    words.collectives = atomic_load(&ring->collectives);
    words.hash = ring->hash;
    words.group = ring->group;
    for (int place = 0; place < LS_FLIGHT_KEPT; place++) {
        struct entry_words entry;
        record.place = (uint8_t)place;
        if (read_entry(ring, place, &entry))
            add_change(m, record, &entry, &shadow->rings[index].entries[place], sizeof entry);
    }
    record.kind = RECORD_RING;
    add_change(m, record, &words, &shadow->rings[index].words, sizeof words);
}

/* The rank's log in its job's memory, which the job's mirror carries for all its groups. */
static void collect_log(struct ls_mirror *m, int rank) {
    const ls_flight_log *log = &m->comm->flight[rank];
    struct log_words words;
    memset(&words, 0, sizeof words);
    words.enqueued = atomic_load(&log->enqueued);
    words.looked_ms = atomic_load(&log->looked_ms);
    words.pid = atomic_load(&log->pid);
    words.left = atomic_load(&log->left);
    words.ring_count = atomic_load(&log->ring_count);
    for (int i = 0; i < words.ring_count; i++) collect_ring(m, rank, i, &log->rings[i]);
    add_change(m, (struct record){.kind = RECORD_LOG, .rank = (uint8_t)rank}, &words, &m->shadow[rank].log,
               sizeof words);
}

static void collect_messages(struct ls_mirror *m, int rank) {
    struct message_words words;
    const ls_rank_slot *slot = &m->comm->segment->slot[rank];
    for (int r = 0; r < LS_COMM_MAX_RANKS; r++) {
        words.sends[r] = atomic_load(&slot->sends[r]);
        words.receives[r] = atomic_load(&slot->receives[r]);
    }
    add_change(m, (struct record){.kind = RECORD_MESSAGES, .rank = (uint8_t)rank}, &words, &m->shadow[rank].messages,
               sizeof words);
}

static void collect_reason(struct ls_mirror *m) {
    if (m->has_told_broken || !ls_comm_is_broken(m->comm) || m->comm->job != m->comm) return;
    struct broken_words words = {.status = m->comm->broken->status, .rank = m->comm->broken->rank};
    memcpy(words.reason, m->comm->broken->reason, sizeof words.reason);
    add(m, (struct record){.kind = RECORD_BROKEN}, &words, sizeof words);
    m->has_told_broken = true;
}

void ls_mirror_collect(struct ls_mirror *m, bool all) {
    const ls_comm *comm = m->comm;
    struct presence_words presence[LS_COMM_MAX_RANKS];
    for (int r = 0; all && r < comm->world_size; r++) presence[r] = presence_of(comm, r);
    for (int r = 0; r < comm->world_size; r++)
        if (ls_is_on_this_host(comm, r)) collect_arrivals(m, r);
    collect_reason(m);
    for (int r = 0; all && r < comm->world_size; r++) {
        if (!ls_is_on_this_host(comm, r)) continue;
        if (comm->flight && comm->owns_flight) collect_log(m, r);
        collect_messages(m, r);
        add_change(m, (struct record){.kind = RECORD_PRESENCE, .rank = (uint8_t)r}, &presence[r],
                   &m->shadow[r].presence, sizeof presence[r]);
    }
}

/* --- applying records --------------------------------------------------------------------------------------------- */

/* A stamp's time on this host. */
static uint64_t own_stamp(uint64_t stamp, int64_t clock_ms) {
    uint64_t time = stamp & LS_FLIGHT_CAPTURED_TIME;
    if (time == 0 || time == LS_FLIGHT_CAPTURED_TIME) return stamp;
    return (stamp & ~LS_FLIGHT_CAPTURED_TIME) | (((uint64_t)clock_ms + time) & LS_FLIGHT_CAPTURED_TIME);
}

static void apply_entry(ls_flight_ring *ring, int place, const struct entry_words *words, int64_t clock_ms) {
    ls_flight_entry *entry = &ring->entries[place];
    atomic_store(&entry->number, 0);
    for (int i = 0; i < LS_STAMP_COUNT; i++) atomic_store(&entry->stamp[i], own_stamp(words->entry[1 + i], clock_ms));
    atomic_store(&entry->sequence, words->entry[4]);
    atomic_store(&entry->count, words->entry[5]);
    atomic_store(&entry->received, words->entry[6]);
    atomic_store(&entry->kinds, words->entry[7]);
    for (int i = 0; i < LABEL_WORDS; i++) atomic_store(&ring->labels[place][i], words->label[i]);
    atomic_store(&entry->number, words->entry[0]);
}

/* Its name does not change once the log counts it. */
static void apply_ring(ls_flight_log *log, int index, const struct ring_words *words) {
    ls_flight_ring *ring = &log->rings[index];
    if (index >= atomic_load(&log->ring_count)) {
        ring->hash = words->hash;
        ring->group = words->group;
        ring->group.name[sizeof ring->group.name - 1] = '\0';
    }
    atomic_store(&ring->collectives, words->collectives);
}

static void apply_log(ls_flight_log *log, const struct log_words *words, int64_t clock_ms) {
    atomic_store(&log->enqueued, words->enqueued);
    atomic_store(&log->looked_ms, words->looked_ms > 0 ? words->looked_ms + clock_ms : 0);
    atomic_store(&log->pid, words->pid);
    atomic_store(&log->left, words->left);
    atomic_store(&log->ring_count, words->ring_count);
}

static void apply_messages(ls_rank_slot *slot, const struct message_words *words) {
    for (int r = 0; r < LS_COMM_MAX_RANKS; r++) {
        atomic_store(&slot->sends[r], words->sends[r]);
        atomic_store(&slot->receives[r], words->receives[r]);
    }
}

static void apply_presence(ls_rank_slot *slot, const struct presence_words *words) {
    atomic_store(&slot->pid, words->pid);
    atomic_store(&slot->awaited_value, words->awaited_value);
    atomic_store(&slot->awaits, words->awaits);
    atomic_store(&slot->left, words->left);
}

/* If a rank of this host has broken the group before, its reason stays. */
static void apply_reason(ls_comm *comm, const struct broken_words *words) {
    int32_t intact = LS_INTACT;
    if (!atomic_compare_exchange_strong(&comm->broken->state, &intact, LS_BREAKING)) return;
    comm->broken->status = words->status;
    comm->broken->rank = words->rank;
    memcpy(comm->broken->reason, words->reason, sizeof words->reason);
    comm->broken->reason[sizeof words->reason - 1] = '\0';
    atomic_store(&comm->broken->state, LS_BROKEN);
}

static void apply_arrival(ls_comm *comm, const struct record *record, const unsigned char *data) {
    uint64_t step;
    memcpy(&step, data, sizeof step);
    ls_arrival *arrival = ls_segment_arrival(comm, (ls_channel_kind)record->index, record->rank, step);
    memcpy((char *)arrival + sizeof step, data + sizeof step, record->nbytes - sizeof step);
    atomic_store(&arrival->step, step);
}

static bool is_sensible(const ls_comm *comm, const ls_mirror_host *host, const struct record *r) {
    static const size_t nbytes[] = {
        [RECORD_ARRIVAL] = offsetof(ls_arrival, message), [RECORD_ENTRY] = sizeof(struct entry_words),
        [RECORD_RING] = sizeof(struct ring_words),        [RECORD_MESSAGES] = sizeof(struct message_words),
        [RECORD_LOG] = sizeof(struct log_words),          [RECORD_PRESENCE] = sizeof(struct presence_words),
        [RECORD_BROKEN] = sizeof(struct broken_words)};
    if (r->kind > RECORD_BROKEN || r->nbytes < nbytes[r->kind]) return false;
    if (r->nbytes > nbytes[r->kind] + (r->kind == RECORD_ARRIVAL ? LS_EAGER_BYTES : 0)) return false;
    if (r->kind == RECORD_BEAT || r->kind == RECORD_BROKEN) return true;
    if (r->rank >= comm->world_size || !host->ranks[r->rank]) return false;
    bool flight = r->kind == RECORD_ENTRY || r->kind == RECORD_RING || r->kind == RECORD_LOG;
    if (flight && !(comm->flight && comm->owns_flight)) return false;
    return r->index < (flight ? LS_FLIGHT_GROUPS : LS_CHANNEL_COUNT) && r->place < LS_FLIGHT_KEPT;
}

static void apply(struct ls_mirror *m, ls_mirror_host *host, const struct record *record, const unsigned char *data) {
    ls_comm *comm = m->comm;
    union {
        struct entry_words entry;
        struct ring_words ring;
        struct message_words messages;
        struct log_words log;
        struct presence_words presence;
        struct broken_words broken;
    } words;
    if (record->nbytes <= sizeof words) memcpy(&words, data, record->nbytes);
    ls_flight_log *log = comm->flight ? &comm->flight[record->rank] : NULL;
    switch ((enum record_kind)record->kind) {
    case RECORD_ARRIVAL: apply_arrival(comm, record, data); break;
    case RECORD_ENTRY: apply_entry(&log->rings[record->index], record->place, &words.entry, host->clock_ms); break;
    case RECORD_RING: apply_ring(log, record->index, &words.ring); break;
    case RECORD_MESSAGES: apply_messages(&comm->segment->slot[record->rank], &words.messages); break;
    case RECORD_LOG:
        if (words.log.ring_count >= 0 && words.log.ring_count <= LS_FLIGHT_GROUPS)
            apply_log(log, &words.log, host->clock_ms);
        break;
    case RECORD_PRESENCE: apply_presence(&comm->segment->slot[record->rank], &words.presence); break;
    case RECORD_BROKEN: apply_reason(comm, &words.broken); break;
    case RECORD_BEAT: break;
    }
}

bool ls_mirror_apply(struct ls_mirror *m, ls_mirror_host *host) {
    ls_bytes *in = &host->in;
    size_t done = 0;
    bool sensible = !in->failed;
    while (sensible && in->used - done >= sizeof(struct record)) {
        struct record record;
        memcpy(&record, in->at + done, sizeof record);
        sensible = is_sensible(m->comm, host, &record);
        if (!sensible || in->used - done < sizeof record + record.nbytes) break;
        apply(m, host, &record, in->at + done + sizeof record);
        done += sizeof record + record.nbytes;
    }
    ls_bytes_drop(in, done);
    for (int channel = 0; channel < LS_CHANNEL_COUNT; channel++) ls_flag_ring(&m->comm->segment->channel[channel].bell);
    return sensible;
}
