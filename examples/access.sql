-- Who may do what, over nested groups: the view tells which permissions a change of memberships grants and revokes.
--
--   rederive run examples/access.sql
--   rederive explain examples/access.sql --view may
--   rederive query examples/access.sql "SELECT member, count(*) FROM may GROUP BY member"

CREATE TABLE member_of (member STRING NOT NULL, team STRING NOT NULL, PRIMARY KEY (member, team));
CREATE TABLE allows (team STRING NOT NULL, right STRING NOT NULL, PRIMARY KEY (team, right));

CREATE TEMPORARY VIEW belongs AS
WITH RECURSIVE reach(member, team) AS (
  SELECT member, team FROM member_of
  UNION
  SELECT reach.member, above.team FROM reach JOIN member_of AS above ON above.member = reach.team
)
SELECT member, team FROM reach;

CREATE VIEW may AS SELECT DISTINCT member, right FROM belongs JOIN allows USING (team);
CREATE VIEW teams_per_right AS SELECT right, count(*) AS teams FROM allows GROUP BY right;

INSERT INTO allows VALUES ('staff', 'read'), ('admins', 'write'), ('admins', 'read');
INSERT INTO member_of VALUES ('ann', 'admins'), ('admins', 'staff'), ('bob', 'staff');

-- ann stays in staff through admins: only bob loses something
BEGIN;
INSERT INTO member_of VALUES ('ann', 'staff');
DELETE FROM member_of WHERE member = 'bob';
COMMIT;
