variant plain
variant resident kl_scores 's/most_pieces(), 1, 64)/most_pieces(), 1, 1)/' kl_gradients 's/most_pieces(), 1, 64)/most_pieces(), 1, 1)/'
variant chunk21 kl 's/{1} << 20/{1} << 21/'
variant chunk19 kl 's/{1} << 20/{1} << 19/'
# What exponentials cost: results are WRONG, of course.
variant unexp_wrong kl_scores 's/power_of_2(fmaf/(fmaf/' kl_gradients 's/power_of_2(fmaf/(fmaf/'
variant two_groups kl_scores 's/groups = 3,/groups = 2,/;s/scorer_registers = 152, copier_registers = 56/scorer_registers = 240, copier_registers = 24/'
