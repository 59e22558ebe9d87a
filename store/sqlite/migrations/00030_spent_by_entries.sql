-- +goose Up
-- Which budgets' accounts a charge was spent of, so that what they have counted can be
-- recomputed (G27, G28). What they had counted before is taken as it stands.
ALTER TABLE entries ADD COLUMN accounts TEXT; -- JSON; NULL: none
ALTER TABLE accounts ADD COLUMN before_spent INTEGER NOT NULL DEFAULT 0;
ALTER TABLE accounts ADD COLUMN before_calls INTEGER NOT NULL DEFAULT 0; -- settled ones
UPDATE accounts SET before_spent = spent, before_calls = calls -
	(SELECT count(*) FROM holds h JOIN calls c ON c.id = h.call_id AND c.state = 'executing', json_each(h.accounts) j WHERE j.value = accounts.account);

PRAGMA user_version = 30;
