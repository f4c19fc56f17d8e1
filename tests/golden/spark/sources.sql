-- local
SELECT * FROM VALUES (1L) AS v(c0);

-- distributed
SELECT * FROM many;

-- combined
SELECT c0 FROM many UNION ALL SELECT c0 FROM (SELECT * FROM VALUES (1L) AS v(c0));

-- combined with nothing
SELECT * FROM many;

-- difference of a few
SELECT /*+ BROADCAST(g) */ o.* FROM many o LEFT ANTI JOIN (SELECT * FROM VALUES (1L) AS v(c0)) g ON (o.c0 = g.c0);

-- difference of many
SELECT o.* FROM many o LEFT ANTI JOIN more g ON (o.c0 <=> g.c0);

-- overlay
SELECT c0 FROM (SELECT /*+ BROADCAST(g) */ o.* FROM many o LEFT ANTI JOIN (SELECT * FROM VALUES (1L) AS v(c0)) g ON (o.c0 <=> g.c0)) UNION ALL SELECT c0 FROM more;
