-- The ledger of baton/fence/pgfence. Running this again changes nothing.
--
-- Everything is found through the search_path, so that each schema can have a
-- ledger of its own.

CREATE TABLE IF NOT EXISTS fenced_resource (
    name      text   PRIMARY KEY,
    "group"   text   NOT NULL,
    max_token bigint NOT NULL CHECK (max_token BETWEEN 1 AND 9007199254740991),
    instance  text   NOT NULL
);

-- Apart from fenced_resource, so that ordered writes leave that row alone.
CREATE TABLE IF NOT EXISTS sequence (
    name        text   PRIMARY KEY REFERENCES fenced_resource (name),
    last_seq    bigint NOT NULL CHECK (last_seq BETWEEN 0 AND 9007199254740991),
    owner_token bigint NOT NULL
);

-- The advisory lock of a resource. It belongs to the table that the name
-- resolves to, so that whoever uses the same ledger uses the same lock. Two
-- names that share a number wait for each other at worst.
CREATE OR REPLACE FUNCTION baton_fence_key(resource text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT hashtextextended(resource, 'fenced_resource'::regclass::oid::bigint)
$$;

-- Refuses, and thereby aborts the transaction: whoever overlooks the error
-- cannot commit. The detail is the record, as pgfence reads it.
CREATE OR REPLACE FUNCTION baton_fence_refuse(code text, reason text, resource text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    record text;
BEGIN
    SELECT json_build_object('group', r."group", 'term', r.max_token, 'instance', r.instance, 'last_seq', coalesce(s.last_seq, 0))
      INTO record
      FROM fenced_resource r LEFT JOIN sequence s USING (name)
     WHERE r.name = resource;
    RAISE EXCEPTION 'fenced resource "%" refuses: %', resource, reason
        USING ERRCODE = code, DETAIL = coalesce(record, '{}');
END $$;

-- What Adopt and Admit have in common.
CREATE OR REPLACE FUNCTION baton_fence_check(resource text, held_group text, held_term bigint, held_instance text,
                                             token_group text, token_term bigint, token_instance text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF held_group <> token_group THEN
        PERFORM baton_fence_refuse('BF004', 'it belongs to another group', resource);
    ELSIF token_term < held_term OR token_term = held_term AND token_instance <> held_instance THEN
        PERFORM baton_fence_refuse('BF001', 'it belongs to a later leadership', resource);
    END IF;
END $$;

-- Lets a write in, or aborts its transaction. seq is 0 for a write without a
-- number. left_ms is what is left of the leadership: a leader that freezes in
-- its transaction loses it by then, and does not block its successor.
--
-- Each statement in here that runs under READ COMMITTED sees what was
-- committed before it began, so the row is read as it is once the lock is
-- held. Under a stricter isolation level the snapshot may be older than the
-- lock; FOR SHARE then fails with a serialization error if the row has changed
-- since, which is a refusal, too. No lock is ever strengthened.
CREATE OR REPLACE FUNCTION baton_fence_admit(resource text, token_group text, token_term bigint, token_instance text,
                                             seq bigint, left_ms bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    held_group    text;
    held_term     bigint;
    held_instance text;
    done          boolean; -- calls whose result is of no interest: far cheaper as an assignment than as PERFORM
BEGIN
    IF current_setting('idle_in_transaction_session_timeout') = '0'
       OR left_ms < 1000 * extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) THEN
        done := set_config('idle_in_transaction_session_timeout', left_ms::text, true) IS NOT NULL;
    END IF;
    IF current_setting('statement_timeout') = '0'
       OR left_ms < 1000 * extract(epoch FROM current_setting('statement_timeout')::interval) THEN
        done := set_config('statement_timeout', left_ms::text, true) IS NOT NULL;
    END IF;

    done := pg_advisory_xact_lock_shared(baton_fence_key(resource)) IS NOT NULL;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        SELECT "group", max_token, instance INTO held_group, held_term, held_instance
          FROM fenced_resource WHERE name = resource FOR SHARE;
    ELSE
        SELECT "group", max_token, instance INTO held_group, held_term, held_instance
          FROM fenced_resource WHERE name = resource;
    END IF;

    IF held_group = token_group AND held_term = token_term AND held_instance = token_instance THEN
        IF seq > 0 THEN
            UPDATE sequence SET last_seq = seq, owner_token = token_term
             WHERE name = resource AND last_seq < seq;
            IF NOT FOUND THEN
                PERFORM baton_fence_refuse('BF002', 'the number is not above the last one', resource);
            END IF;
        END IF;
        RETURN;
    END IF;
    PERFORM baton_fence_check(resource, held_group, held_term, held_instance, token_group, token_term, token_instance);
    PERFORM baton_fence_refuse('BF003', 'it was not adopted', resource);
END $$;

-- Makes the resource the token's and returns the last number. Those that were
-- let in before finish first; whoever takes longer than evict_ms (0: any time)
-- is disconnected, since its leadership is over. Runs in a transaction of its
-- own, under READ COMMITTED.
CREATE OR REPLACE FUNCTION baton_fence_adopt(resource text, token_group text, token_term bigint, token_instance text,
                                             evict_ms bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    key           bigint := baton_fence_key(resource);
    held_group    text;
    held_term     bigint;
    held_instance text;
    locked        boolean := false;
    waited        boolean := false;
    holder        integer;
    last          bigint;
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'adopt fenced resource "%": the transaction is %, want read committed', resource, current_setting('transaction_isolation')
            USING ERRCODE = 'BF005';
    END IF;
    -- A crash must not forget an adoption that was acknowledged.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    -- A leader that freezes before its commit would keep all later ones out.
    IF current_setting('idle_in_transaction_session_timeout') = '0'
       OR current_setting('idle_in_transaction_session_timeout')::interval > '1s' THEN
        PERFORM set_config('idle_in_transaction_session_timeout', '1s', true);
    END IF;

    LOOP
        SELECT "group", max_token, instance INTO held_group, held_term, held_instance
          FROM fenced_resource WHERE name = resource;
        -- Checked before the lock, too, and again before anybody is
        -- disconnected: who is refused disturbs nobody.
        PERFORM baton_fence_check(resource, held_group, held_term, held_instance, token_group, token_term, token_instance);
        EXIT WHEN held_term = token_term OR locked;
        IF waited THEN
            FOR holder IN
                SELECT pid FROM pg_locks
                 WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND objsubid = 1
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                   AND classid = ((key >> 32) & 4294967295)::oid AND objid = (key & 4294967295)::oid
            LOOP
                BEGIN
                    PERFORM pg_terminate_backend(holder);
                EXCEPTION WHEN insufficient_privilege THEN
                    NULL; -- of another role: its own timeout ends it
                END;
            END LOOP;
        END IF;
        BEGIN
            PERFORM set_config('lock_timeout', evict_ms::text, true);
            PERFORM pg_advisory_xact_lock(key);
            PERFORM set_config('lock_timeout', '0', true);
            locked := true;
        EXCEPTION WHEN lock_not_available THEN
            waited := true;
        END;
    END LOOP;

    IF held_term IS NULL THEN
        INSERT INTO fenced_resource (name, "group", max_token, instance)
             VALUES (resource, token_group, token_term, token_instance);
        INSERT INTO sequence (name, last_seq, owner_token) VALUES (resource, 0, token_term);
    ELSIF held_term < token_term THEN
        UPDATE fenced_resource SET max_token = token_term, instance = token_instance WHERE name = resource;
    END IF;
    SELECT s.last_seq INTO last FROM sequence s WHERE s.name = resource;
    RETURN last;
END $$;
