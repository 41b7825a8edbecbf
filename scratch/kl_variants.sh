variant plain
variant chunk21 kl 's/{1} << 20/{1} << 21/'
variant piece2048 kl 's/least_piece = 512/least_piece = 2048/'
# What exponentials cost: results are WRONG, of course.
variant unexp_wrong kl_scores 's/power_of_2(fmaf/(fmaf/' kl_gradients 's/power_of_2(fmaf/(fmaf/'
# What reads of queries cost that are not in the cache: all are of one token.
variant near_wrong kl_scores 's/batch.token_of(step % batch_steps)/min(batch.token_of(step % batch_steps), 0)/' kl_gradients 's/batch.token_of(step)/min(batch.token_of(step), 0)/'
