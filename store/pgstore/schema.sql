-- Where baton/store/pgstore keeps leases, version 1. Names are written for the
-- schema "baton"; for another one pgstore.Schema replaces every "baton." below.
--
-- Each request is one call of one function, so it is one transaction and one
-- round trip: a client that freezes holds no lock.

CREATE TABLE baton.store (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
    id      uuid    NOT NULL DEFAULT gen_random_uuid(), -- tells cursors of this store from all others
    floor   bigint  NOT NULL DEFAULT 0 CHECK (floor BETWEEN 0 AND 9007199254740991) -- new groups start above
);
INSERT INTO baton.store (version) VALUES (1);

-- A row for each group that was ever led. Half of each page is left free, so
-- that a renewal finds room beside the row and touches no index.
CREATE TABLE baton.lease (
    grp              text COLLATE "C" PRIMARY KEY,
    term             bigint NOT NULL CHECK (term BETWEEN 0 AND 9007199254740991), -- the holder's, or the last one
    base             bigint NOT NULL,           -- the floor when the group was first used
    ended            bigint NOT NULL DEFAULT 0, -- how many leaderships have ended
    node             text,                      -- null: nobody leads
    instance         text,
    metadata         json,
    ttl_us           bigint,
    ends             timestamptz,               -- when the lease runs out
    elected          timestamptz,
    gap_us           bigint,                    -- without a leader before
    ending_reason    text,                      -- set: it is being ended gently
    ending_note      text,
    ending_successor text,
    last_node        text,                      -- who led last
    last_instance    text,
    last_ended       timestamptz,
    last_reason      text,
    successor        text                       -- whom the last ending named
) WITH (fillfactor = 50);

-- The last 99 leaderships that ended, as a ring.
CREATE TABLE baton.past_term (
    grp      text COLLATE "C",
    slot     integer,
    term     bigint      NOT NULL,
    node     text        NOT NULL,
    instance text        NOT NULL,
    metadata json,
    elected  timestamptz NOT NULL,
    ended    timestamptz NOT NULL,
    gap_us   bigint      NOT NULL,
    reason   text        NOT NULL,
    note     text,
    PRIMARY KEY (grp, slot)
);

-- What is registered of a group.
CREATE TABLE baton.policy (
    grp            text COLLATE "C" PRIMARY KEY,
    version        bigint NOT NULL,
    min_ttl_ns     bigint NOT NULL,
    max_ttl_ns     bigint NOT NULL,
    retry_after_ns bigint NOT NULL,
    allowed_nodes  text[] NOT NULL
);
CREATE SEQUENCE baton.policy_version;

-- Who waits for which group. No safety rests on it, so it is not logged: after a
-- crash of Postgres it is empty, and those who wait line up again.
CREATE UNLOGGED TABLE baton.place (
    grp      text COLLATE "C",
    node     text,
    instance text,
    number   bigint      NOT NULL, -- first come, first served
    taken    timestamptz NOT NULL,
    seen     timestamptz NOT NULL, -- the last sign of life
    PRIMARY KEY (grp, node, instance)
) WITH (fillfactor = 50);
CREATE SEQUENCE baton.place_number;

-- The clock that judges. It is Postgres' wall clock.
CREATE FUNCTION baton.clock() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() $$;

CREATE FUNCTION baton.us(d interval) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT floor(extract(epoch FROM d) * 1000000)::bigint $$;

-- What requests are answered with: an outcome, and the state of the group.
CREATE TYPE baton.answer AS (
    outcome          text,
    term             bigint,
    node             text,
    instance         text,
    metadata         json,
    ttl_us           bigint,
    left_us          bigint,
    ending_reason    text,
    ending_note      text,
    ending_successor text,
    wait_us          bigint
);

CREATE FUNCTION baton.tell(outcome text, l baton.lease, at timestamptz, wait_us bigint DEFAULT 0) RETURNS baton.answer
LANGUAGE plpgsql AS $$
BEGIN
    IF l.grp IS NULL THEN
        l.term := (SELECT s.floor FROM baton.store s);
    END IF;
    RETURN ROW (outcome, l.term, l.node, l.instance, l.metadata, l.ttl_us, baton.us(l.ends - at),
                l.ending_reason, l.ending_note, l.ending_successor, wait_us)::baton.answer;
END $$;

-- A place lasts for 7 seconds after a sign of life. One from the future is from
-- before the clock was set back.
CREATE FUNCTION baton.fresh(seen timestamptz, at timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$ SELECT seen BETWEEN at - interval '7 seconds' AND at + interval '7 seconds' $$;

-- Those in line who gave a sign of life of late, first come first, but the successor before all.
CREATE FUNCTION baton.line(g text, heir text, at timestamptz) RETURNS SETOF baton.place
LANGUAGE sql STABLE AS $$
    SELECT * FROM baton.place p
     WHERE p.grp = g AND baton.fresh(p.seen, at)
     ORDER BY p.node IS NOT DISTINCT FROM heir DESC, p.number
$$;

-- How many in line go before this one; all of them if it has no place.
CREATE FUNCTION baton.ahead(g text, heir text, at timestamptz, its_node text, its_instance text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce(min(n) FILTER (WHERE node = its_node AND instance = its_instance) - 1, count(*))
      FROM (SELECT node, instance, row_number() OVER (ORDER BY node IS NOT DISTINCT FROM heir DESC, number) AS n FROM baton.line(g, heir, at)) AS l
$$;

-- Tells those who wait or watch how groups are now, and is nothing but a hint.
-- It names who is first in line: whose turn it is, or who looks when the lease that
-- stands will end. It is called behind what it
-- tells of, in a transaction of its own: one that notifies keeps all others that do so from
-- committing until it is on disk, and this one has nothing to put there.
CREATE FUNCTION baton.hint(groups text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    at timestamptz := baton.clock();
    l     baton.lease;
    first baton.place;
BEGIN
    FOR l IN SELECT * FROM baton.lease WHERE grp = ANY (groups) LOOP
        SELECT * INTO first FROM baton.line(l.grp, coalesce(l.ending_successor, l.successor), at) LIMIT 1;
        PERFORM pg_notify('baton.hints',
            concat_ws(' ', CASE WHEN l.ends > at THEN 'led' ELSE 'open' END, l.grp, first.node, first.instance));
    END LOOP;
END $$;

-- Ends the leadership in l, whose row is locked.
CREATE FUNCTION baton.over(l baton.lease, reason text, note text, heir text, stopped timestamptz) RETURNS baton.lease
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO baton.past_term AS p (grp, slot, term, node, instance, metadata, elected, ended, gap_us, reason, note)
    VALUES (l.grp, l.ended % 99, l.term, l.node, l.instance, l.metadata, l.elected, greatest(stopped, l.elected), l.gap_us, over.reason, over.note)
    ON CONFLICT (grp, slot) DO UPDATE SET (term, node, instance, metadata, elected, ended, gap_us, reason, note)
        = (excluded.term, excluded.node, excluded.instance, excluded.metadata, excluded.elected, excluded.ended, excluded.gap_us, excluded.reason, excluded.note);
    UPDATE baton.lease SET
        ended = l.ended + 1, node = NULL, instance = NULL, metadata = NULL, ttl_us = NULL, ends = NULL, elected = NULL, gap_us = NULL,
        ending_reason = NULL, ending_note = NULL, ending_successor = NULL,
        last_node = l.node, last_instance = l.instance, last_ended = greatest(stopped, l.elected), last_reason = over.reason, successor = heir
     WHERE grp = l.grp RETURNING * INTO l;
    RETURN l;
END $$;

-- What comes before every change.
CREATE FUNCTION baton.prepare() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the transaction is %, want read committed', current_setting('transaction_isolation') USING ERRCODE = 'BS001';
    END IF;
    -- A crash must not forget what was acknowledged.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- Locks the row of a group until the transaction ends. Whoever calls it reads
-- the clock in a statement behind it: then the wait for the lock is over, and
-- nobody moves the deadline any more.
CREATE FUNCTION baton.lock(g text) RETURNS baton.lease
LANGUAGE plpgsql AS $$
DECLARE
    l baton.lease;
BEGIN
    PERFORM baton.prepare();
    SELECT * INTO l FROM baton.lease WHERE grp = g FOR UPDATE;
    IF NOT FOUND THEN
        -- A lock is a write: what is said of no row waits for the standby, as what is said of one does.
        PERFORM FROM baton.store FOR KEY SHARE;
    END IF;
    RETURN l;
END $$;

-- Writes down that the lease has run out, if it has. A lease that ends later
-- than its whole TTL from now was made before the clock was set back. What its holder
-- was promised is over in a TTL at most.
CREATE FUNCTION baton.settle(l baton.lease, at timestamptz) RETURNS baton.lease
LANGUAGE plpgsql AS $$
BEGIN
    IF l.ends <= at THEN
        RETURN baton.over(l, 'EXPIRED', l.ending_note, l.ending_successor, l.ends);
    END IF;
    IF l.ends > at + l.ttl_us * interval '1 microsecond' THEN
        UPDATE baton.lease SET ends = at + l.ttl_us * interval '1 microsecond' WHERE grp = l.grp RETURNING * INTO l;
    END IF;
    RETURN l;
END $$;

-- Lets the lease in l last for so long from now, unless it is being ended.
CREATE FUNCTION baton.extend(l baton.lease, for_us bigint, at timestamptz) RETURNS baton.answer
LANGUAGE plpgsql AS $$
BEGIN
    IF l.ending_reason IS NULL THEN
        UPDATE baton.lease SET
            ttl_us = greatest(l.ttl_us, for_us),
            ends = greatest(l.ends, at + for_us * interval '1 microsecond')
         WHERE grp = l.grp RETURNING * INTO l;
    END IF;
    RETURN baton.tell('granted', l, at);
END $$;

CREATE FUNCTION baton.acquire(g text, its_node text, its_instance text, its_metadata json, for_us bigint) RETURNS baton.answer
LANGUAGE plpgsql AS $$
DECLARE
    last_possible constant bigint   := 9007199254740991;
    turn          constant interval := '1 second';
    l     baton.lease;
    at    timestamptz;
    above bigint;
BEGIN
    LOOP
        l := baton.lock(g);
        EXIT WHEN l.grp IS NOT NULL;
        -- Locked, since the group may come and go meanwhile, which raises the floor.
        SELECT s.floor INTO above FROM baton.store s FOR SHARE;
        IF above >= last_possible THEN
            RETURN baton.tell('exhausted', l, baton.clock());
        END IF;
        INSERT INTO baton.lease (grp, term, base) VALUES (g, above, above) ON CONFLICT (grp) DO NOTHING;
    END LOOP;
    at := baton.clock();
    l := baton.settle(l, at);

    IF l.node = its_node AND l.instance = its_instance THEN
        RETURN baton.extend(l, for_us, at);
    ELSIF l.last_node = its_node AND l.last_instance = its_instance THEN
        RETURN baton.tell('ended', l, at);
    ELSIF l.node IS NOT NULL THEN
        RETURN baton.tell('held', l, at);
    END IF;
    SELECT greatest(s.floor, l.term) INTO above FROM baton.store s;
    IF above >= last_possible THEN
        RETURN baton.tell('exhausted', l, at);
    ELSIF l.last_ended <= at AND l.last_ended > at - turn
          AND baton.ahead(g, l.successor, at, its_node, its_instance) > 0 THEN
        RETURN baton.tell('turn', l, at, baton.us(l.last_ended + turn - at));
    END IF;

    UPDATE baton.lease SET
        term = above + 1, node = its_node, instance = its_instance, metadata = its_metadata,
        ttl_us = for_us, ends = at + for_us * interval '1 microsecond', elected = at,
        gap_us = greatest(0, coalesce(baton.us(at - l.last_ended), 0)), successor = NULL
     WHERE grp = g RETURNING * INTO l;
    DELETE FROM baton.place p
     WHERE p.grp = g AND (p.node = its_node AND p.instance = its_instance OR NOT baton.fresh(p.seen, at));
    RETURN baton.tell('granted', l, at);
END $$;

CREATE FUNCTION baton.renew(g text, its_node text, its_instance text, its_term bigint, for_us bigint) RETURNS baton.answer
LANGUAGE plpgsql AS $$
DECLARE
    l  baton.lease;
    at timestamptz;
BEGIN
    l := baton.lock(g);
    at := baton.clock();
    l := baton.settle(l, at);
    IF l.node = its_node AND l.instance = its_instance AND l.term = its_term THEN
        RETURN baton.extend(l, for_us, at);
    END IF;
    RETURN baton.tell('not leader', l, at);
END $$;

CREATE FUNCTION baton.release(g text, its_node text, its_instance text, its_term bigint) RETURNS baton.answer
LANGUAGE plpgsql AS $$
DECLARE
    l  baton.lease;
    at timestamptz;
BEGIN
    l := baton.lock(g);
    at := baton.clock();
    l := baton.settle(l, at);
    IF l.node = its_node AND l.instance = its_instance AND l.term = its_term THEN
        l := baton.over(l, coalesce(l.ending_reason, 'RESIGNED'), l.ending_note, l.ending_successor, at);
        RETURN baton.tell('done', l, at);
    END IF;
    RETURN baton.tell('not leader', l, at);
END $$;

CREATE FUNCTION baton.end_term(g text, its_term bigint, why text, with_note text, heir text, immediate boolean) RETURNS baton.answer
LANGUAGE plpgsql AS $$
DECLARE
    l  baton.lease;
    at timestamptz;
BEGIN
    l := baton.lock(g);
    at := baton.clock();
    l := baton.settle(l, at);
    IF l.node IS NULL OR l.term <> its_term THEN
        RETURN baton.tell('not leader', l, at);
    ELSIF heir IS NOT NULL AND NOT EXISTS (SELECT FROM baton.line(g, heir, at) p WHERE p.node = heir) THEN
        RETURN baton.tell('not in line', l, at);
    ELSIF immediate THEN
        l := baton.over(l, why, with_note, heir, at);
    ELSE
        UPDATE baton.lease SET ending_reason = why, ending_note = with_note, ending_successor = heir
         WHERE grp = g RETURNING * INTO l;
    END IF;
    RETURN baton.tell('done', l, at);
END $$;

-- For those who look and find a lease that has run out.
CREATE FUNCTION baton.note_expiry(g text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    l baton.lease;
BEGIN
    l := baton.lock(g);
    PERFORM baton.settle(l, baton.clock());
END $$;

-- Takes a place in line or keeps it, and says after how many microseconds it
-- makes sense to ask again; 0 if it is the candidate's turn. The first goes when the group
-- opens, each one behind it a second later. Who came after that counts from when it came.
CREATE FUNCTION baton.await(g text, its_node text, its_instance text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    turn constant interval := '1 second';
    at    timestamptz := baton.clock();
    l     baton.lease;
    mine  baton.place;
    opens timestamptz;
    heir  text;
BEGIN
    SELECT * INTO l FROM baton.lease WHERE grp = g;
    IF l.node = its_node AND l.instance = its_instance AND l.ends > at THEN
        RETURN 0;
    END IF;
    INSERT INTO baton.place AS p (grp, node, instance, number, taken, seen)
    VALUES (g, its_node, its_instance, nextval('baton.place_number'), at, at)
    ON CONFLICT (grp, node, instance) DO UPDATE SET
        -- A place whose owner was away for too long is a new one.
        number = CASE WHEN baton.fresh(p.seen, at) THEN p.number ELSE excluded.number END,
        taken  = CASE WHEN baton.fresh(p.seen, at) THEN p.taken ELSE at END,
        seen   = at
    RETURNING * INTO mine;
    IF mine.taken = at THEN -- a new one
        DELETE FROM baton.place p
         USING (SELECT * FROM baton.place d WHERE d.grp = g AND NOT baton.fresh(d.seen, at) FOR UPDATE SKIP LOCKED) AS dead
         WHERE p.grp = g AND p.node = dead.node AND p.instance = dead.instance;
    END IF;
    opens := coalesce(least(l.ends, at + l.ttl_us * interval '1 microsecond'), least(l.last_ended, at), mine.taken);
    heir := CASE WHEN l.node IS NULL THEN l.successor ELSE l.ending_successor END;
    RETURN greatest(0, baton.us(greatest(opens, least(mine.taken, at))
        + baton.ahead(g, heir, at, its_node, its_instance) * turn - at));
END $$;

CREATE FUNCTION baton.put_policy(g text, current bigint, min_ns bigint, max_ns bigint, retry_ns bigint, nodes text[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    next bigint := nextval('baton.policy_version');
BEGIN
    PERFORM baton.prepare();
    PERFORM FROM baton.store FOR KEY SHARE; -- as in lock
    IF current = 0 THEN
        INSERT INTO baton.policy VALUES (g, next, min_ns, max_ns, retry_ns, nodes) ON CONFLICT (grp) DO NOTHING;
    ELSE
        UPDATE baton.policy SET version = next, min_ttl_ns = min_ns, max_ttl_ns = max_ns, retry_after_ns = retry_ns, allowed_nodes = nodes
         WHERE grp = g AND version = current;
    END IF;
    RETURN CASE WHEN FOUND THEN next ELSE 0 END;
END $$;

-- The floor comes before the group here, as it does in acquire, so that the two
-- do not wait for each other.
CREATE FUNCTION baton.delete_group(g text) RETURNS baton.answer
LANGUAGE plpgsql AS $$
DECLARE
    l          baton.lease;
    at         timestamptz;
    registered boolean;
BEGIN
    PERFORM FROM baton.store FOR UPDATE;
    l := baton.lock(g);
    at := baton.clock();
    l := baton.settle(l, at);
    IF l.node IS NOT NULL THEN
        RETURN baton.tell('held', l, at);
    END IF;
    DELETE FROM baton.policy WHERE grp = g;
    registered := FOUND;
    DELETE FROM baton.past_term WHERE grp = g;
    DELETE FROM baton.lease WHERE grp = g;
    RETURN baton.tell(CASE WHEN FOUND OR registered THEN 'done' ELSE 'not found' END, l, at);
END $$;

-- Whoever removes rows, this store or a person: terms go on above them, and a
-- group that is led is not opened by it.
CREATE FUNCTION baton.keep_terms() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    l baton.lease;
BEGIN
    FOR l IN SELECT * FROM baton.lease WHERE TG_OP = 'TRUNCATE' OR grp = OLD.grp LOOP
        IF l.ends > baton.clock() THEN
            RAISE EXCEPTION 'group "%" is led by node "%" in term %: end that leadership first', l.grp, l.node, l.term
                USING ERRCODE = 'BS002';
        END IF;
        UPDATE baton.store SET floor = l.term WHERE floor < l.term;
    END LOOP;
    RETURN OLD;
END $$;
CREATE TRIGGER keep_terms BEFORE DELETE ON baton.lease FOR EACH ROW EXECUTE FUNCTION baton.keep_terms();
CREATE TRIGGER keep_all_terms BEFORE TRUNCATE ON baton.lease FOR EACH STATEMENT EXECUTE FUNCTION baton.keep_terms();
