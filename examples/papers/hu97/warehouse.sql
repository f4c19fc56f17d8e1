-- HU97, Example 1.1: V1 is the join of R, S and T, and V2 is a copy of S.
CREATE TABLE r (x STRING NOT NULL, y STRING NOT NULL, PRIMARY KEY (x, y)) USING remote;
CREATE TABLE s (y STRING NOT NULL, z STRING NOT NULL, PRIMARY KEY (y, z)) USING remote;
CREATE TABLE t (z STRING NOT NULL PRIMARY KEY) USING remote;
CREATE VIEW v1 AS SELECT r.x, r.y, s.z FROM r, s, t WHERE r.y = s.y AND s.z = t.z;
CREATE VIEW v2 AS SELECT y, z FROM s;
