{{ config(materialized='table', file_format='delta') }}

SELECT by_kind.kind, by_kind.total, count(unsold.item) AS unsold
FROM {{ ref('by_kind') }} AS by_kind
LEFT JOIN {{ ref('unsold') }} AS unsold ON unsold.kind = by_kind.kind
GROUP BY by_kind.kind, by_kind.total
