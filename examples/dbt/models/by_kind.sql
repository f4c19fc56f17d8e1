{{ config(materialized='rederive') }}

SELECT kind, sum(amount) AS total, count(*) AS sales
FROM {{ source('shop', 'sale') }} AS sale
JOIN {{ source('shop', 'item') }} AS item ON sale.item = item.item
GROUP BY kind
