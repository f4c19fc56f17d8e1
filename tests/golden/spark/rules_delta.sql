-- local delta
SELECT /*+ BROADCAST(s1) */ s1.c0 AS c0, a2.c1 AS c1 FROM (SELECT a0.c0 AS c0, a0.c1 AS c1, CAST(NULL AS STRING) AS e FROM (SELECT * FROM VALUES (1L, 'a') AS v(c0, c1)) a0) s1 JOIN q a2 ON (a2.c0 = s1.c1) AND (a2.c0 IN ('a'));

-- large delta
SELECT /*+ BROADCAST(s1) */ s1.c0 AS c0, a2.c1 AS c1 FROM (SELECT a0.c0 AS c0, a0.c1 AS c1, CAST(NULL AS STRING) AS e FROM d a0) s1 JOIN q a2 ON (a2.c0 = s1.c1);
